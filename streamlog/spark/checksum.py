"""A checksum over rows that does not depend on their order.

Where a batch's offsets cannot be read from the query's checkpoint, this and the number of rows
tell whether a batch that runs again is the same batch. It covers what the user gave (key, value,
headers, topic, partition, timestamp), never what the sink adds, such as the time of rows that
came without one.

Each row has two hashes of 32 bits, FNV-1a and one that multiplies by MurmurHash2's constant. Its
fields go into both, lengths and nulls marked; then both are mixed and make one number. The
checksum is the sum of the rows' numbers modulo 2**64 (`checksum_sum` of the commits' `identity`
adds those of several parts). It finds accidents; nobody signs with it.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamlog.binary.arrays import read_only
from streamlog.binary.jit import kernel
from streamlog.log.commits.identity import checksum_sum
from streamlog.records.columns import BinaryColumn, HeaderColumn
from streamlog.spark.sink_columns import DECIDED_BY_PARTITIONER, TIME_OF_BATCH, SinkColumns

__all__ = ["checksum_rows", "plain_checksum_rows"]

_MASK: Final = 0xFFFFFFFF
_FNV_BASIS: Final = 0x811C9DC5
_FNV_PRIME: Final = 0x01000193
_MURMUR: Final = 0x5BD1E995  # below 2**31: no product leaves 63 bits
_MIX: Final = 0x045D9F3B
_NULL: Final = -1  # in place of a length
_NUMBER_SIZE: Final = 8


def checksum_rows(columns: SinkColumns) -> int:
    """Return the checksum of some rows, 0 to 2**64 - 1.

    Args:
        columns: The rows.

    Returns:
        The same for the same rows in any order.
    """
    hashes = _new_hashes(columns.count)
    _add_column(columns.key, hashes)
    _add_column(columns.value, hashes)
    _add_headers(columns.headers, hashes)
    for numbers in _numbers(columns):
        _add_numbers(read_only(numbers, np.int64), hashes)
    sums = np.zeros(2, np.int64)
    _sum_mixed(hashes, sums)
    return _join(int(sums[0]), int(sums[1]))


def _join(first: int, second: int) -> int:
    return ((first << 32) + second) % (1 << 64)


def _new_hashes(count: int) -> NDArray[np.int64]:
    hashes = np.zeros((count, 2), np.int64)
    hashes[:, 0] = _FNV_BASIS
    return hashes


def _add_column(column: BinaryColumn | None, hashes: NDArray[np.int64]) -> None:
    if column is None:
        _add_numbers(read_only(np.full(len(hashes), _NULL, np.int64), np.int64), hashes)
        return
    validity = column.validity
    if validity is None:
        validity = np.full((len(hashes) + 7) // 8, 0xFF, np.uint8)
    _add_strings(
        read_only(column.offsets, np.int32),
        read_only(column.data, np.uint8),
        read_only(validity, np.uint8),
        hashes,
    )


def _add_headers(headers: HeaderColumn | None, hashes: NDArray[np.int64]) -> None:
    if headers is None:
        _add_numbers(read_only(np.zeros(len(hashes), np.int64), np.int64), hashes)
        return
    pairs = _new_hashes(int(headers.offsets[-1]))
    _add_column(headers.key, pairs)
    _add_column(headers.value, pairs)
    _add_runs(read_only(headers.offsets, np.int32), read_only(pairs, np.int64), hashes)


def _numbers(columns: SinkColumns) -> list[NDArray[np.int64]]:
    """Return topic, partition and timestamp as int64[n] each."""
    topic = np.zeros(columns.count, np.int64)
    if columns.topic is not None:
        names = [_plain_add((_FNV_BASIS, 0), name.encode())[0] for name in columns.topics]
        topic = np.array(names, np.int64)[columns.topic]
    partition = np.full(columns.count, DECIDED_BY_PARTITIONER, np.int64)
    if columns.partition is not None:
        partition = columns.partition.astype(np.int64)
    timestamp = columns.timestamp
    if timestamp is None:
        timestamp = np.full(columns.count, TIME_OF_BATCH, np.int64)
    return [topic, partition, timestamp]


# ---- kernels: out_hashes is int64[n, 2], a row's two hashes --------------------------------------
@kernel
def _add_number(number: int, row: int, out_hashes: NDArray[np.int64]) -> int:
    """Add eight bytes of `number`, lowest first, to the hashes of a row; int64[n, 2]."""
    first, second = out_hashes[row, 0], out_hashes[row, 1]
    for place in range(_NUMBER_SIZE):
        byte = (number >> (8 * place)) & 0xFF
        first = ((first ^ byte) * _FNV_PRIME) & _MASK
        second = ((second + byte + 1) * _MURMUR) & _MASK
    out_hashes[row, 0], out_hashes[row, 1] = first, second
    return _NUMBER_SIZE


@kernel
def _add_numbers(numbers: NDArray[np.int64], out_hashes: NDArray[np.int64]) -> int:
    """Add numbers[row] to each row's hashes; int64[n]."""
    for row in range(numbers.size):
        _add_number(numbers[row], row, out_hashes)
    return numbers.size


@kernel
def _add_strings(
    offsets: NDArray[np.int32],
    data: NDArray[np.uint8],
    validity: NDArray[np.uint8],
    out_hashes: NDArray[np.int64],
) -> int:
    """Add string `row` of a column to each row's hashes: its length or _NULL, then its bytes."""
    count = offsets.size - 1
    for row in range(count):
        if (validity[row >> 3] >> (row & 7)) & 1 == 0:
            _add_number(_NULL, row, out_hashes)
            continue
        begin, end = int(offsets[row]), int(offsets[row + 1])
        _add_number(end - begin, row, out_hashes)
        first, second = out_hashes[row, 0], out_hashes[row, 1]
        for position in range(begin, end):
            byte = int(data[position])
            first = ((first ^ byte) * _FNV_PRIME) & _MASK
            second = ((second + byte + 1) * _MURMUR) & _MASK
        out_hashes[row, 0], out_hashes[row, 1] = first, second
    return count


@kernel
def _add_runs(
    offsets: NDArray[np.int32], pairs: NDArray[np.int64], out_hashes: NDArray[np.int64]
) -> int:
    """Add the hashes int64[m, 2] of each row's headers to its own: how many, then each."""
    count = offsets.size - 1
    for row in range(count):
        begin, end = int(offsets[row]), int(offsets[row + 1])
        _add_number(end - begin, row, out_hashes)
        for pair in range(begin, end):
            _add_number(pairs[pair, 0], row, out_hashes)
            _add_number(pairs[pair, 1], row, out_hashes)
    return count


@kernel
def _sum_mixed(hashes: NDArray[np.int64], out_sums: NDArray[np.int64]) -> int:
    """Add all rows' hashes, mixed, to int64[2]."""
    for row in range(hashes.shape[0]):
        for lane in range(2):
            value = hashes[row, lane]
            value ^= value >> 16
            value = (value * _MIX) & _MASK
            value ^= value >> 16
            out_sums[lane] += value
    return len(hashes)


# ---- the plain twin --------------------------------------------------------------------------
def plain_checksum_rows(columns: SinkColumns) -> int:
    """Return what `checksum_rows` returns, in plain Python."""
    keys = [None] * columns.count if columns.key is None else list(columns.key)
    values = list(columns.value)
    headers = [()] * columns.count if columns.headers is None else list(columns.headers)
    numbers = np.stack(_numbers(columns), axis=1)
    total = 0
    for row in range(columns.count):
        hashes = _plain_add_string((_FNV_BASIS, 0), keys[row])
        hashes = _plain_add_string(hashes, values[row])
        hashes = _plain_add_number(hashes, len(headers[row]))
        for header in headers[row]:
            pair = _plain_add_string((_FNV_BASIS, 0), header.key.encode())
            for lane in _plain_add_string(pair, header.value):
                hashes = _plain_add_number(hashes, lane)
        first, second = _plain_add(hashes, numbers[row].tobytes())
        total = checksum_sum(total, _join(_plain_mix(first), _plain_mix(second)))
    return total


def _plain_add_string(hashes: tuple[int, int], text: bytes | None) -> tuple[int, int]:
    return _plain_add(_plain_add_number(hashes, _NULL if text is None else len(text)), text or b"")


def _plain_add_number(hashes: tuple[int, int], number: int) -> tuple[int, int]:
    return _plain_add(hashes, number.to_bytes(_NUMBER_SIZE, "little", signed=True))


def _plain_add(hashes: tuple[int, int], text: bytes) -> tuple[int, int]:
    first, second = hashes
    for byte in text:
        first = (first ^ byte) * _FNV_PRIME & _MASK
        second = (second + byte + 1) * _MURMUR & _MASK
    return first, second


def _plain_mix(value: int) -> int:
    value ^= value >> 16
    value = value * _MIX & _MASK
    return value ^ value >> 16
