"""Schemas of a directory: by id and subject, with what they refer to."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from streamlog.decoding.decoder import DecoderSpec, Format, open_decoder
from streamlog.decoding.schemas import open_schemas
from streamlog.errors import FileMissingError, InvalidOptionError, UnknownSchemaError
from streamlog.fs.local import LocalFileSystem


def record(name: str, *fields: tuple[str, object]) -> str:
    rows = [{"name": field, "type": kind} for field, kind in fields]
    return json.dumps({"type": "record", "name": name, "fields": rows})


def test_types_and_imports_of_other_files(tmp_path: Path) -> None:
    (tmp_path / "a.B.avsc").write_text(record("a.B", ("c", ["null", "a.C"])))
    (tmp_path / "a.C.avsc").write_text(record("a.C", ("x", "int")))
    (tmp_path / "t-value").mkdir()
    for version in (1, 2, 10):
        text = record("a.R", *[(f"b{n}", "a.B") for n in range(version)])
        (tmp_path / "t-value" / f"{version}.avsc").write_text(text)
    spec = DecoderSpec(format=Format.AVRO, registry=str(tmp_path), subject="t-value")
    decoder = open_decoder(spec.resolve())
    assert decoder.arrow_type.num_fields == 10  # the highest version, not the last name
    assert str(decoder.arrow_type[0].type) == "struct<c: struct<x: int32>>"

    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "c.proto").write_text(
        'syntax="proto3"; package l; message C { int32 x = 1; }'
    )
    (tmp_path / "p-value.proto").write_text(
        'syntax="proto3";\nimport "lib/c.proto";\nmessage P { l.C c = 1; }'
    )
    spec = DecoderSpec(format=Format.PROTOBUF, registry=str(tmp_path), subject="p-value")
    assert str(open_decoder(spec.resolve()).arrow_type) == "struct<c: struct<x: int32>>"


def test_compiled_descriptors(tmp_path: Path) -> None:
    from google.protobuf import descriptor_pb2, timestamp_pb2

    files = descriptor_pb2.FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(files.file.add())
    (tmp_path / "set.desc").write_bytes(files.SerializeToString())
    spec = DecoderSpec(format=Format.PROTOBUF, schema=f"@{tmp_path}/set.desc", is_framed=False)
    decoder = open_decoder(spec.resolve())
    assert decoder.arrow_type == pa.timestamp("us", tz="UTC")
    for content in (b"\xff", b"", files.SerializeToString()[:-3]):
        (tmp_path / "set.desc").write_bytes(content)
        with pytest.raises(InvalidOptionError):
            spec.resolve()


def test_errors_say_what_is_missing(tmp_path: Path) -> None:
    fs = LocalFileSystem()
    with pytest.raises(InvalidOptionError, match="no such directory"):
        open_schemas(str(tmp_path / "none"), fs=fs)
    schemas = open_schemas(str(tmp_path), fs=fs)
    with pytest.raises(UnknownSchemaError, match=r"7\.avsc"):
        schemas.by_id(7)
    with pytest.raises(UnknownSchemaError, match="t-value"):
        schemas.latest("t-value")
    with pytest.raises(InvalidOptionError):
        schemas.latest("../x")
    with pytest.raises(FileMissingError):
        DecoderSpec(format=Format.AVRO, schema="@/no/such/file").resolve()
    with pytest.raises(InvalidOptionError, match="reader's schema"):
        DecoderSpec(format=Format.AVRO).resolve()
    (tmp_path / "1.avsc").write_bytes(b"\xff")
    with pytest.raises(InvalidOptionError, match="UTF-8"):
        schemas.by_id(1)
