"""Decoding good values must not load pandas into each of Spark's workers."""

import subprocess
import sys

PROGRAM = """
import sys
import numpy as np
import pyarrow as pa
from streamlog.decoding.decoder import DecoderSpec, Format, open_decoder

def column(*values):
    ends = np.cumsum([0, *map(len, values)]).astype(np.int32)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(values))]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)

avro = '{"type": "record", "name": "R", "fields": [{"name": "m", "type": {"type": "map", "values":'
avro += '{"type": "enum", "name": "E", "symbols": ["A"]}}}]}'
for kind, schema, value in (
    (Format.AVRO, avro, b"\\4\\2k\\0\\2k\\0\\0"),
    (Format.PROTOBUF, 'syntax = "proto3"; message M { int32 a = 1; }', b"\\x08\\1"),
    (Format.JSON, "a INT", b'{"a": 1}'),
):
    spec = DecoderSpec(format=kind, schema=schema, is_framed=False)
    decoded = open_decoder(spec.resolve()).decode(column(value, value))
    assert decoded.errors.null_count == 2, decoded
    assert "pandas" not in sys.modules, kind
"""


def test_decoding_loads_no_pandas() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)
