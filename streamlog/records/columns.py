"""Records as flat arrays, in exactly the layout Arrow uses: no Python object per record.

`decode_columns` turns whole batches into `RecordColumns`. Every length is checked before
anything is copied, and what is allocated follows from what was checked, never from a claim.
Compressed batches are decompressed, bounded, into one arena first.
"""

from collections.abc import Collection, Iterator
from typing import Final, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from streamlog.binary.arrays import Buffer, as_source
from streamlog.errors import CorruptRecordError, LimitExceededError
from streamlog.records.batch import BatchTable
from streamlog.records.layout import MAX_INT32, MAX_INT64, RECORDS_OFFSET, TIMESTAMP_TYPE_MASK
from streamlog.records.record import CompressionType, Header, Record, TimestampType

__all__ = [
    "COLUMNS",
    "MAX_DECOMPRESSED_BATCH",
    "BinaryColumn",
    "HeaderColumn",
    "RecordColumns",
    "decode_columns",
]

COLUMNS: Final = frozenset({"key", "value", "headers"})
MAX_DECOMPRESSED_BATCH: Final = 64 << 20  # ours: no batch a leader accepts comes near it
_OWN_TIMESTAMPS: Final = -(2**63)


class BinaryColumn(NamedTuple):
    """Nullable byte strings as Arrow's `binary` lays them out.

    Attributes:
        offsets: int32[n + 1]; string i is data[offsets[i]:offsets[i + 1]].
        data: uint8[m].
        validity: uint8[ceil(n / 8)], bit i (lowest first) set where string i is not null; None
            where no string is null.
        null_count: How many are null.
    """

    offsets: NDArray[np.int32]
    data: NDArray[np.uint8]
    validity: NDArray[np.uint8] | None
    null_count: int

    def values(self) -> list[bytes | None]:
        """Return the strings as Python objects."""
        data = self.data.tobytes()
        borders = self.offsets.tolist()
        strings: list[bytes | None] = [
            data[start:end] for start, end in zip(borders[:-1], borders[1:], strict=True)
        ]
        if self.validity is not None:
            valid = np.unpackbits(self.validity, bitorder="little")[: len(strings)]
            for index in np.flatnonzero(valid == 0).tolist():
                strings[index] = None
        return strings


class HeaderColumn(NamedTuple):
    """The headers of n records: record i has headers offsets[i] to offsets[i + 1] - 1."""

    offsets: NDArray[np.int32]
    key: BinaryColumn
    value: BinaryColumn


class RecordColumns(NamedTuple):
    """n records, a column a field; a column that was not asked for is None.

    Attributes:
        count: n.
        offset: int64[n].
        timestamp: int64[n], ms since 1970, -1 for none.
        timestamp_type: int32[n], the numbers of `TimestampType`.
        key: Keys.
        value: Values.
        headers: Headers.
    """

    count: int
    offset: NDArray[np.int64]
    timestamp: NDArray[np.int64]
    timestamp_type: NDArray[np.int32]
    key: BinaryColumn | None
    value: BinaryColumn | None
    headers: HeaderColumn | None

    def records(self) -> Iterator[Record]:
        """Yield the records one by one, for those who want objects."""
        nothing: list[bytes | None] = [None] * self.count
        keys = nothing if self.key is None else self.key.values()
        values = nothing if self.value is None else self.value.values()
        kinds = [TimestampType(kind) for kind in self.timestamp_type.tolist()]
        rows = zip(
            keys,
            values,
            _header_lists(self.headers, self.count),
            self.timestamp.tolist(),
            self.offset.tolist(),
            kinds,
            strict=True,
        )
        return (Record(*row) for row in rows)


def _header_lists(headers: HeaderColumn | None, count: int) -> list[tuple[Header, ...]]:
    if headers is None or headers.offsets[-1] == 0:
        return [()] * count
    keys = [str(key or b"", "utf-8", "replace") for key in headers.key.values()]
    pairs = [Header(*pair) for pair in zip(keys, headers.value.values(), strict=True)]
    borders = headers.offsets.tolist()
    return [tuple(pairs[a:b]) for a, b in zip(borders[:-1], borders[1:], strict=True)]


class _Source(NamedTuple):
    """Where the records of each batch lie: in the buffer itself or in the arena."""

    array: NDArray[np.uint8]
    facts: NDArray[np.int64]  # begin, end, count, base offset, base timestamp, fixed timestamp


def decode_columns(
    buffer: Buffer,
    table: BatchTable,
    *,
    columns: Collection[str] = COLUMNS,
    start_offset: int = 0,
    end_offset: int = MAX_INT64,
    drop_control: bool = True,
    max_decompressed: int = MAX_DECOMPRESSED_BATCH,
    path: str | None = None,
    position: int = 0,
) -> RecordColumns:
    """Return the records of some batches as flat arrays.

    Args:
        buffer: The bytes that `table` was scanned from; their checksums have been checked.
        table: The batches.
        columns: Which of `key`, `value`, `headers` to return.
        start_offset: Records below it are left out.
        end_offset: Records from it on are left out.
        drop_control: Whether control records are left out.
        max_decompressed: The most bytes one batch may decompress to.
        path: The file the bytes come from, for errors.
        position: Where in that file `buffer` starts, for errors.

    Returns:
        The records, in the order of the batches.

    Raises:
        CorruptRecordError: A record whose structure is wrong, or an unknown codec.
        LimitExceededError: More bytes than `max_decompressed`, or than an Arrow column can hold.
    """
    from streamlog.records import kernels

    if drop_control and (control := table.is_control).any():
        table = table.select(~control)
    sources = _sources(buffer, table, max_decompressed, path, position)
    sums = np.zeros(kernels.SUMS, np.int64)
    error = np.zeros(2, np.int64)
    rows_before = np.zeros(len(sources) + 1, np.int64)
    for index, (array, facts) in enumerate(sources):
        status = kernels.measure_records(array, facts, start_offset, end_offset, sums, error)
        if status < 0:
            _refuse(status, table, index, error, path, position)
        rows_before[index + 1] = sums[kernels.SUM_ROWS]
    largest = int(sums[1:6].max())
    if largest > MAX_INT32 or int(sums[kernels.SUM_ROWS]) > MAX_INT32:
        raise LimitExceededError(
            "more bytes than one Arrow column holds; read less at once",
            path=path,
            position=position,
            got=f"{largest} bytes",
            expected=f"at most {MAX_INT32}",
        )
    return _copy(sources, sums, rows_before, table, frozenset(columns), start_offset, end_offset)


def _copy(
    sources: list[_Source],
    sums: NDArray[np.int64],
    rows_before: NDArray[np.int64],
    table: BatchTable,
    columns: frozenset[str],
    start_offset: int,
    end_offset: int,
) -> RecordColumns:
    """Fill arrays of the measured sizes."""
    from streamlog.records import kernels

    rows = int(sums[kernels.SUM_ROWS])
    headers = int(sums[kernels.SUM_HEADERS]) if "headers" in columns else 0
    want_key, want_value, want_headers = (name in columns for name in ("key", "value", "headers"))
    numbers = np.empty((2, rows), np.int64)
    key = _room(rows if want_key else 0, int(sums[kernels.SUM_KEY_BYTES]) if want_key else 0)
    value = _room(
        rows if want_value else 0, int(sums[kernels.SUM_VALUE_BYTES]) if want_value else 0
    )
    header_offsets = np.zeros(rows + 1 if want_headers else 1, np.int32)
    header_key = _room(headers, int(sums[kernels.SUM_HEADER_KEY_BYTES]) if headers else 0)
    header_value = _room(headers, int(sums[kernels.SUM_HEADER_VALUE_BYTES]) if headers else 0)
    wanted = want_key | want_value << 1 | want_headers << 2
    for index, (array, facts) in enumerate(sources):
        row = int(rows_before[index])
        if row == rows_before[index + 1]:
            continue
        kernels.copy_records(
            array,
            facts,
            start_offset,
            end_offset,
            int(wanted),
            row,
            int(header_offsets[row]) if want_headers else 0,
            numbers,
            key,
            value,
            header_offsets,
            header_key,
            header_value,
        )
    stamped = (table.attributes & TIMESTAMP_TYPE_MASK) != 0
    nulls = sums[kernels.SUM_NULL_KEYS : kernels.SUM_NULL_HEADER_VALUES + 1].tolist()
    return RecordColumns(
        count=rows,
        offset=numbers[0],
        timestamp=numbers[1],
        timestamp_type=np.repeat(stamped.astype(np.int32), np.diff(rows_before)),
        key=_column(key, nulls[0]) if want_key else None,
        value=_column(value, nulls[1]) if want_value else None,
        headers=HeaderColumn(
            header_offsets, _column(header_key, 0), _column(header_value, nulls[2])
        )
        if want_headers
        else None,
    )


_Room = tuple[NDArray[np.int32], NDArray[np.uint8], NDArray[np.uint8]]


def _room(rows: int, size: int) -> _Room:
    """Return offsets, data and validity for `rows` strings of `size` bytes together."""
    return (
        np.zeros(rows + 1, np.int32),
        np.empty(size, np.uint8),
        np.zeros((rows + 7) // 8, np.uint8),
    )


def _column(room: _Room, null_count: int) -> BinaryColumn:
    return BinaryColumn(room[0], room[1], room[2] if null_count else None, null_count)


def _sources(
    buffer: Buffer, table: BatchTable, max_decompressed: int, path: str | None, position: int
) -> list[_Source]:
    """Return where each batch's records lie, decompressing those that are compressed."""
    array = as_source(buffer)
    facts = np.empty((len(table), 6), np.int64)
    facts[:, 0] = table.position + RECORDS_OFFSET
    facts[:, 1] = table.position + table.size
    facts[:, 2] = table.count
    facts[:, 3] = table.base_offset
    facts[:, 4] = table.base_timestamp
    stamped = (table.attributes & TIMESTAMP_TYPE_MASK) != 0
    facts[:, 5] = np.where(stamped, table.max_timestamp, _OWN_TIMESTAMPS)
    codecs = table.codec
    if not codecs.any():
        return [_Source(array, row) for row in facts]
    view = memoryview(buffer)
    sources = []
    for row, codec in zip(facts, codecs.tolist(), strict=True):
        if codec == 0 or row[0] == row[1]:
            sources.append(_Source(array, row))
            continue
        begin, end = int(row[0]), int(row[1])
        records = _decompress(codec, view[begin:end], max_decompressed, path, position + begin)
        row[0], row[1] = 0, records.size
        sources.append(_Source(records, row))
    return sources


def _decompress(
    codec: int, data: memoryview, max_size: int, path: str | None, position: int
) -> NDArray[np.uint8]:
    from streamlog.binary.compression import decompress

    if codec > max(CompressionType):
        raise CorruptRecordError(
            "unknown codec", path=path, position=position, got=str(codec), expected="0 to 4"
        )
    plain = decompress(
        CompressionType(codec), data, max_size=max_size, path=path, position=position
    )
    return as_source(plain)


_WRONG: Final = {
    -1: "record length runs over its batch",
    -2: "record ends inside its first fields",
    -3: "key length runs over its record",
    -4: "value length runs over its record",
    -5: "impossible number of headers",
    -6: "header key length runs over its record",
    -7: "header value length runs over its record",
    -8: "bytes left in a record behind its last header",
    -9: "impossible number of records",
    -10: "bytes left in a batch behind its last record",
}


def _refuse(
    status: int,
    table: BatchTable,
    index: int,
    error: NDArray[np.int64],
    path: str | None,
    position: int,
) -> NoReturn:
    raise CorruptRecordError(
        _WRONG[status],
        path=path,
        position=position + int(table.position[index]),
        offset=int(table.base_offset[index]),
        got=f"record {int(error[0])} of {int(table.count[index])}, "
        f"{int(error[1])} bytes into the decompressed records"
        if int(table.codec[index])
        else f"record {int(error[0])} of {int(table.count[index])}",
        expected="records that fill their batch exactly",
    )
