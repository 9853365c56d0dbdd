"""A checksum over rows that does not depend on their order.

If the source lines of a query's checkpoint do not identify the input of a batch, this checksum and
the number of rows decide whether a repeated batch is the same batch. It covers the user's columns
(key, value, headers, topic, partition, timestamp), never what the sink adds, such as the time of
rows without a timestamp.

Each row has two 32-bit hashes. Its fields are added to both, one 8-byte word at a time, including
lengths and marks for null, with different multipliers; then both are mixed and joined into one
number. The checksum is the sum of these numbers modulo 2**64 (`checksum_sum` of the commits'
`fingerprint` adds the sums of several parts). It detects accidents and is not a signature. All
products stay below 2**63, so kernels compute the same result compiled and as plain Python.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamlog.arrow.sink_columns import DECIDED_BY_PARTITIONER, TIME_OF_BATCH, SinkColumns
from streamlog.binary.arrays import WORD_SIZE, read_only
from streamlog.binary.jit import inlined, int64, kernel, load_word
from streamlog.errors import InvalidRecordError
from streamlog.records.columns import BinaryColumn, HeaderColumn

__all__ = ["checksum_rows"]

_MASK: Final = 0xFFFFFFFF
_BASIS: Final = 0x811C9DC5
# Odd, and below 2**31: a product with 32 bits fits into 63 bits.
_LOW_1: Final = 0x2545F491
_HIGH_1: Final = 0x5BD1E995
_CHAIN_1: Final = 0x045D9F3B
_LOW_2: Final = 0x68E31DA5
_HIGH_2: Final = 0x1B873593
_CHAIN_2: Final = 0x4CF5AD43
_MIX: Final = 0x045D9F3B
_NULL: Final = -1  # in place of a length
_OUT_OF_BOUNDS: Final = -1


def checksum_rows(columns: SinkColumns) -> int:
    """Return the checksum of some rows, 0 to 2**64 - 1.

    Args:
        columns: The rows.

    Returns:
        The same number for the same rows in any order.
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
    hashes[:, 0] = _BASIS
    return hashes


def _add_column(column: BinaryColumn | None, hashes: NDArray[np.int64]) -> None:
    if column is None:
        _add_numbers(read_only(np.full(len(hashes), _NULL, np.int64), np.int64), hashes)
        return
    validity = column.validity
    if validity is None:
        validity = np.full((len(hashes) + 7) // 8, 0xFF, np.uint8)
    status = _add_strings(
        read_only(column.offsets, np.int32),
        read_only(column.data, np.uint8),
        read_only(validity, np.uint8),
        hashes,
    )
    if status == _OUT_OF_BOUNDS:
        raise InvalidRecordError(
            "column offsets lie outside its bytes",
            got=f"{column.offsets[0]} to {column.offsets[-1]}",
            expected=f"0 to {len(column.data)}, ascending",
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
        names = [_plain_add_string((_BASIS, 0), name.encode())[0] for name in columns.topics]
        topic = np.array(names, np.int64)[columns.topic]
    partition = np.full(columns.count, DECIDED_BY_PARTITIONER, np.int64)
    if columns.partition is not None:
        partition = columns.partition.astype(np.int64)
    timestamp = columns.timestamp
    if timestamp is None:
        timestamp = np.full(columns.count, TIME_OF_BATCH, np.int64)
    return [topic, partition, timestamp]


# ---- kernels: out_hashes is int64[n, 2], a row's two hashes --------------------------------------
@inlined
def _add_word(word: int, row: int, out_hashes: NDArray[np.int64]) -> None:
    """Add 8 bytes to the hashes of a row; int64[n, 2]."""
    low, high = word & _MASK, (word >> 32) & _MASK
    first, second = out_hashes[row, 0], out_hashes[row, 1]
    mixed = (low * _LOW_1) ^ (high * _HIGH_1)
    first = ((first ^ (mixed & _MASK) ^ (mixed >> 32)) * _CHAIN_1) & _MASK
    out_hashes[row, 0] = first ^ (first >> 15)
    mixed = (low * _LOW_2) ^ (high * _HIGH_2)
    second = ((second ^ (mixed & _MASK) ^ (mixed >> 32)) * _CHAIN_2 + 1) & _MASK
    out_hashes[row, 1] = second ^ (second >> 13)


@kernel
def _add_numbers(numbers: NDArray[np.int64], out_hashes: NDArray[np.int64]) -> int:
    """Add numbers[row] to each row's hashes; int64[n]."""
    for row in range(numbers.size):
        _add_word(int64(numbers[row]), row, out_hashes)
    return numbers.size


@kernel
def _add_strings(
    offsets: NDArray[np.int32],
    data: NDArray[np.uint8],
    validity: NDArray[np.uint8],
    out_hashes: NDArray[np.int64],
) -> int:
    """Add string `row` of a column to each row's hashes: its length or _NULL, then its bytes.

    The last word of 8 bytes or more overlaps the one before; fewer bytes are padded to a word.
    """
    count = offsets.size - 1
    for row in range(count):
        if (validity[row >> 3] >> (row & 7)) & 1 == 0:
            _add_word(int64(_NULL), row, out_hashes)
            continue
        begin, end = int64(offsets[row]), int64(offsets[row + 1])
        if begin < 0 or end < begin or end > data.size:
            return _OUT_OF_BOUNDS
        _add_word(end - begin, row, out_hashes)
        position = begin
        while position + WORD_SIZE <= end:
            _add_word(load_word(data, position), row, out_hashes)
            position += WORD_SIZE
        if position == end:
            continue
        if end - begin >= WORD_SIZE:
            _add_word(load_word(data, end - WORD_SIZE), row, out_hashes)
            continue
        word = int64(0)
        for place in range(end - begin):
            word |= int64(data[begin + place]) << (8 * place)
        _add_word(word, row, out_hashes)
    return count


@kernel
def _add_runs(
    offsets: NDArray[np.int32], pairs: NDArray[np.int64], out_hashes: NDArray[np.int64]
) -> int:
    """Add the hashes int64[m, 2] of each row's headers to its own: their number, then each."""
    count = offsets.size - 1
    for row in range(count):
        begin, end = int(offsets[row]), int(offsets[row + 1])
        _add_word(int64(end - begin), row, out_hashes)
        for pair in range(begin, end):
            _add_word(int64(pairs[pair, 0]), row, out_hashes)
            _add_word(int64(pairs[pair, 1]), row, out_hashes)
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


# ---- names of topics, few enough for plain Python --------------------------------------------
def _plain_add_string(hashes: tuple[int, int], text: bytes | None) -> tuple[int, int]:
    if text is None:
        return _plain_add_word(hashes, _NULL)
    hashes = _plain_add_word(hashes, len(text))
    whole = len(text) // WORD_SIZE * WORD_SIZE
    words = [text[place : place + WORD_SIZE] for place in range(0, whole, WORD_SIZE)]
    if whole < len(text):
        words.append(text[-WORD_SIZE:])
    for word in words:
        hashes = _plain_add_word(hashes, int.from_bytes(word, "little", signed=len(word) == 8))
    return hashes


def _plain_add_word(hashes: tuple[int, int], word: int) -> tuple[int, int]:
    low, high = word & _MASK, (word >> 32) & _MASK
    mixed = (low * _LOW_1) ^ (high * _HIGH_1)
    first = ((hashes[0] ^ (mixed & _MASK) ^ (mixed >> 32)) * _CHAIN_1) & _MASK
    mixed = (low * _LOW_2) ^ (high * _HIGH_2)
    second = ((hashes[1] ^ (mixed & _MASK) ^ (mixed >> 32)) * _CHAIN_2 + 1) & _MASK
    return first ^ (first >> 15), second ^ (second >> 13)
