"""The library's checksum as compiled loops call it: by an exported symbol, or through Python."""

import ctypes
import json
import subprocess
import sys
from typing import Any

import crc32c as library
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.binary import crc_function
from streamlog.binary.crc import crc32c
from streamlog.binary.crc_function import CRC32C_EMPTY
from streamlog.records import batch_kernels
from streamlog.records.builder import encode_columns
from streamlog.records.columns import BinaryColumn, InputColumns
from tests.meta.repository import ROOT

NAMES = {
    True: crc_function.HARDWARE_NAMES,
    False: crc_function.SOFTWARE_NAMES,
}

ANOTHER_PROCESS = """
import json, sys
import numpy as np
{before}
from streamlog.binary import crc_function
from streamlog.records import batch_kernels
from streamlog.records.batch import scan_batches
buffer = np.frombuffer(sys.stdin.buffer.read(), np.uint8)
fields = scan_batches(buffer).table.fields
bad = batch_kernels.find_bad_checksum(buffer, fields)
hits = sum(batch_kernels.find_bad_checksum.stats.cache_hits.values())
is_python = crc_function.FUNCTION is crc_function.through_python
print(json.dumps([len(fields), bad, hits, is_python]))
"""


def checksum(function: Any, data: bytes) -> int:
    text = ctypes.create_string_buffer(data, len(data))
    state: int = function(CRC32C_EMPTY, ctypes.addressof(text), len(data))
    return state ^ CRC32C_EMPTY


@pytest.mark.parametrize("is_hardware", [True, False])
@given(data=st.binary(max_size=300))
def test_the_exported_function_computes_the_checksum(is_hardware: bool, data: bytes) -> None:
    function = crc_function.exported(NAMES[is_hardware])
    if function is None:
        assert is_hardware is not library.hardware_based, "the installed build exports its own"
    else:
        assert checksum(function, data) == crc32c(data)


@given(data=st.binary(max_size=300))
def test_the_call_through_python_computes_the_same_checksum(data: bytes) -> None:
    assert checksum(crc_function.through_python, data) == crc32c(data)
    assert crc_function.through_python(CRC32C_EMPTY, None, 0) == CRC32C_EMPTY


def test_a_name_that_is_not_exported_is_not_found() -> None:
    assert crc_function.exported(("_crc32c_of_another_build",)) is None


def test_a_function_that_computes_something_else_is_not_trusted() -> None:
    assert crc_function.exported(("crc32c_init_hw_adler",)) is None


@pytest.mark.parametrize("is_exported", [True, False])
def test_another_process_loads_the_loop_from_the_cache(is_exported: bool) -> None:
    """Compiled code refers to the function by name; its address differs in each process."""
    values = BinaryColumn.from_values([b"value"] * 20)
    encoded = encode_columns(InputColumns(np.zeros(20, np.int64), None, values), batch_size=100)
    buffer, fields = encoded.buffer, encoded.table.fields
    buffer[-1] ^= 1
    source = np.frombuffer(buffer.tobytes(), np.uint8)
    assert batch_kernels.find_bad_checksum(source, fields) == len(fields) - 1
    before = "" if is_exported else "import crc32c._crc32c as c; c.__file__ = '/not/there.so'"
    done = subprocess.run(
        [sys.executable, "-c", ANOTHER_PROCESS.format(before=before)],
        cwd=ROOT,
        input=buffer.tobytes(),
        capture_output=True,
        check=True,
    )
    answer = json.loads(done.stdout)
    assert answer == [len(fields), len(fields) - 1, 1, not is_exported]
