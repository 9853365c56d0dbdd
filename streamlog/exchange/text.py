"""Columns as text and back: base64, hexadecimal digits, headers as JSON lists, times in ms.

    key, value     text in `--encoding`; with utf8, a key that is not UTF-8 is null in `key` and in
                   base64 in `keyBase64`, as in the lines that `cat` prints
    headers        a JSON list as in those lines; null without headers
    timestamp      ms since 1970, -1 for none

Null and empty differ: null is no text at all, and empty is text of length 0, which CSV quotes.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streamlog.arrow.schema import HEADERS, SinkSchema
from streamlog.arrow.sink_columns import SinkColumns
from streamlog.arrow.sink_columns import read_columns as view_columns
from streamlog.binary.arrays import as_source, read_only
from streamlog.errors import InvalidRecordError, LimitExceededError
from streamlog.records.columns import BinaryColumn, HeaderColumn, RecordColumns
from streamlog.records.json_lines import format_records
from streamlog.records.json_objects import ENCODINGS
from streamlog.records.layout import MAX_INT32
from streamlog.topic import TopicPartition

__all__ = [
    "BASE64_SUFFIX",
    "BINARY",
    "as_json_lines",
    "as_text",
    "bytes_as_text",
    "check_size",
    "decoded",
    "from_milliseconds",
    "milliseconds",
    "quoted",
    "text_schema",
]

BINARY: Final = ("key", "value")
BASE64_SUFFIX: Final = "Base64"
_UTF8: Final = ENCODINGS.index("utf8")
_BASE64: Final = ENCODINGS.index("base64")
_WORST: Final = 6  # bytes of JSON per byte of text
_HEADER_SIZE: Final = 64  # names and punctuation of one header
_MS_PER_US: Final = 1000
_NONE: Final[Mapping[str, pa.Array]] = MappingProxyType({})


# ---- to text ---------------------------------------------------------------------------------
def text_schema(
    columns: tuple[str, ...], encoding: str, cells: Mapping[str, pa.DataType] = _NONE
) -> pa.Schema:
    """Return the schema of `as_text`, with the types of its `cells`."""
    kinds = {"partition": pa.int32(), "offset": pa.int64(), "timestamp": pa.int64()}
    kinds["timestampType"] = pa.int32()
    kinds |= cells
    fields = []
    for name in columns:
        fields.append((name, kinds.get(name, pa.string())))
        if name in BINARY and encoding == "utf8" and name not in cells:
            fields.append((name + BASE64_SUFFIX, pa.string()))
    return pa.schema(fields)


def as_text(
    batch: pa.RecordBatch,
    columns: tuple[str, ...],
    encoding: str,
    cells: Mapping[str, pa.Array] = _NONE,
) -> pa.RecordBatch:
    """Return records with text in place of bytes, headers and times.

    Args:
        batch: Records with the columns of `read_table`.
        columns: The columns to keep.
        encoding: `utf8`, `base64` or `hex`, of keys, values and header values.
        cells: Columns that are cells of CSV already; those of the batch are not looked at.

    Raises:
        LimitExceededError: The text of a column does not fit into one batch.
    """
    at = ENCODINGS.index(encoding)
    view = _view(_without(batch, cells))
    arrays: list[pa.Array] = []
    for name in columns:
        if name in cells:
            arrays.append(cells[name])
            continue
        column = batch.column(batch.schema.get_field_index(name))
        if name in BINARY:
            arrays += _binary_as_text(view.key if name == "key" else view.value, len(column), at)
        elif name == HEADERS:
            arrays.append(_headers_as_text(view.headers, len(column), at))
        else:
            arrays.append(milliseconds(column) if name == "timestamp" else column)
    types = {name: each.type for name, each in cells.items()}
    return pa.RecordBatch.from_arrays(arrays, schema=text_schema(columns, encoding, types))


def as_json_lines(
    batch: pa.RecordBatch,
    partition: TopicPartition,
    encoding: str,
    fields: Mapping[str, pa.Array] = _NONE,
    rest: pa.Array | None = None,
) -> memoryview:
    """Return records as the lines that `cat --format ndjson` prints.

    Args:
        batch: Records with all columns of `read_table`, headers included.
        partition: Their partition.
        encoding: `utf8`, `base64` or `hex`.
        fields: Keys or values that are JSON already, with the comma and the name before them; those
            of the batch are not looked at.
        rest: Text for the end of each object; null for none.
    """
    view = _view(_without(batch, fields))
    written = {name: _flat(each) for name, each in fields.items()}
    kind = batch.column(batch.schema.get_field_index("timestampType"))
    offset = batch.column(batch.schema.get_field_index("offset"))
    time = milliseconds(batch.column(batch.schema.get_field_index("timestamp")))
    columns = RecordColumns(
        count=batch.num_rows,
        offset=_numbers(offset, np.dtype(np.int64)),
        timestamp=_numbers(time, np.dtype(np.int64)),
        timestamp_type=_numbers(kind, np.dtype(np.int32)),
        key=written.get("key", view.key if view.key is not None else _nulls(batch.num_rows)),
        value=written.get("value", view.value),
        headers=view.headers,
    )
    ending = None if rest is None else _flat(rest)
    return format_records(columns, partition, encoding=encoding, written=[*written], rest=ending)


def bytes_as_text(column: pa.Array, encoding: str) -> list[pa.Array]:
    """Return one column of text; in UTF-8 a second one, in base64, for what is not."""
    return _binary_as_text(_flat(column), len(column), ENCODINGS.index(encoding))


def _without(batch: pa.RecordBatch, columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
    return batch.select([each for each in batch.schema.names if each not in columns])


def _flat(column: pa.Array) -> BinaryColumn:
    batch = pa.RecordBatch.from_arrays([column], ["value"])
    return view_columns(batch, SinkSchema(0, None, None, None, None, None)).value


def milliseconds(column: pa.Array) -> pa.Array:
    """Return times in microseconds as whole milliseconds: int64[n]."""
    micros = column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
    # A time of Kafka is a whole number of milliseconds, and -1 ms divides exactly as well.
    return pc.divide(micros, pa.scalar(_MS_PER_US, pa.int64()))


def _view(batch: pa.RecordBatch) -> SinkColumns:
    """View keys, values and headers as flat arrays; an absent value is null."""
    names = batch.schema.names
    if "value" not in names:
        batch = batch.append_column("value", pa.nulls(batch.num_rows, pa.binary()))
        names = batch.schema.names
    places = {name: place for place, name in enumerate(names)}
    schema = SinkSchema(places["value"], places.get("key"), places.get(HEADERS), None, None, None)
    return view_columns(batch, schema)


def _nulls(count: int) -> BinaryColumn:
    return BinaryColumn(
        np.zeros(count + 1, np.int32),
        np.zeros(0, np.uint8),
        np.zeros(-(-count // 8), np.uint8),
        count,
    )


def _numbers(column: pa.Array, dtype: np.dtype) -> NDArray:  # type: ignore[type-arg]
    at = column.offset * dtype.itemsize
    return np.frombuffer(column.buffers()[1], dtype, len(column), at)


def _binary_as_text(column: BinaryColumn | None, count: int, encoding: int) -> list[pa.Array]:
    """Return one column of text; with UTF-8 a second one for what is not."""
    from streamlog.exchange.text_kernels import mark_invalid

    column = column if column is not None else _nulls(count)
    if encoding != _UTF8:
        return [_encoded(column, encoding)]
    marks = np.zeros(count, np.uint8)
    wrong = 0
    if not _is_text(column, count):
        wrong = mark_invalid(marks, *_offsets_and_data(column))
    validity = _valid(column, count)
    wrong_and_there = marks.astype(bool) & validity
    if not wrong or not wrong_and_there.any():
        return [_string(column, validity), pa.nulls(count, pa.string())]
    rest = BinaryColumn(
        column.offsets,
        column.data,
        np.packbits(wrong_and_there, bitorder="little"),
        int(count - wrong_and_there.sum()),
    )
    return [_string(column, validity & ~wrong_and_there), _encoded(rest, _BASE64)]


def _is_text(column: BinaryColumn, count: int) -> bool:
    """Return whether all values are UTF-8, as far as one fast check can tell."""
    try:
        _string(column, np.ones(count, bool)).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _valid(column: BinaryColumn, count: int) -> NDArray[np.bool_]:
    if column.validity is None:
        return np.ones(count, bool)
    bits = np.unpackbits(as_source(column.validity), count=count, bitorder="little")
    return bits.astype(bool)


def _string(column: BinaryColumn, validity: NDArray[np.bool_]) -> pa.Array:
    nulls = int(len(validity) - validity.sum())
    bits = pa.py_buffer(np.packbits(validity, bitorder="little")) if nulls else None
    buffers = [bits, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(pa.string(), len(validity), buffers, nulls)


def _offsets_and_data(column: BinaryColumn) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    return read_only(column.offsets, np.int32), as_source(column.data)


def _arrays(
    column: BinaryColumn,
) -> tuple[NDArray[np.int32], NDArray[np.uint8], NDArray[np.uint8]]:
    validity = as_source(b"" if column.validity is None else column.validity)
    return (*_offsets_and_data(column), validity)


def _encoded(column: BinaryColumn, encoding: int) -> pa.Array:
    from streamlog.exchange.text_kernels import encode_values

    count = len(column)
    size = int(column.offsets[-1]) - int(column.offsets[0])
    room = 4 * count + 2 * size
    check_size(room)
    offsets, out = np.zeros(count + 1, np.int32), np.empty(room, np.uint8)
    written = encode_values(offsets, out, _arrays(column), encoding)
    text = BinaryColumn(offsets, out[:written], column.validity, column.null_count)
    return _string(text, _valid(column, count))


def quoted(column: pa.Array) -> pa.Array:
    """Return text as JSON strings; null stays null.

    Raises:
        LimitExceededError: They do not fit into one column.
    """
    from streamlog.exchange.text_kernels import quote_values

    flat, count = _flat(column), len(column)
    room = 2 * count + _WORST * (int(flat.offsets[-1]) - int(flat.offsets[0]))
    check_size(room)
    offsets, out = np.zeros(count + 1, np.int32), np.empty(room, np.uint8)
    written = quote_values(offsets, out, _arrays(flat))
    text = BinaryColumn(offsets, out[:written], flat.validity, flat.null_count)
    return _string(text, _valid(text, count))


def _headers_as_text(headers: HeaderColumn | None, count: int, encoding: int) -> pa.Array:
    from streamlog.exchange.text_kernels import encode_headers

    if headers is None:
        return pa.nulls(count, pa.string())
    room = 2 * count + len(headers.key) * _HEADER_SIZE
    room += _WORST * (len(headers.key.data) + len(headers.value.data))
    check_size(room)
    offsets, out = np.zeros(count + 1, np.int32), np.empty(room, np.uint8)
    runs = read_only(headers.offsets, np.int32)
    written = encode_headers(
        offsets, out, runs, _arrays(headers.key), _arrays(headers.value), encoding
    )
    return _string(BinaryColumn(offsets, out[:written]), np.diff(runs) > 0)


def check_size(size: int) -> None:
    """Raise `LimitExceededError` if so many bytes of text do not fit into a column."""
    if size > MAX_INT32:
        raise LimitExceededError(
            "records are too large to write them as text",
            got=f"up to {size} bytes of text",
            expected=f"at most {MAX_INT32}",
            hint="export to Parquet",
        )


# ---- from text -------------------------------------------------------------------------------
_DIGITS64: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_BAD: Final = 0xFF
_PAD: Final = ord("=")


def _table(digits: bytes) -> NDArray[np.uint8]:
    table = np.full(256, _BAD, np.uint8)
    table[np.frombuffer(digits, np.uint8)] = np.arange(len(digits), dtype=np.uint8)
    return table


_VALUES64: Final = _table(_DIGITS64)
_VALUES16: Final = _table(b"0123456789abcdef")
_VALUES16[np.frombuffer(b"ABCDEF", np.uint8)] = np.arange(10, 16)


def decoded(column: pa.Array, encoding: str, name: str) -> pa.Array:
    """Return the bytes that a column of text stands for.

    Args:
        column: The text; null stays null.
        encoding: `utf8`, `base64` or `hex`.
        name: The column's name, for errors.

    Raises:
        InvalidRecordError: A text is not in this encoding; names the row within the column.
    """
    if encoding == "utf8":
        return column.cast(pa.binary())
    offsets, text = _texts(column)
    decode = _from_base64 if encoding == "base64" else _from_hex
    starts, data, bad = decode(offsets, text)
    if bad is not None:
        shown = column[bad].as_py()
        raise InvalidRecordError(
            f"row {bad}: column {name} is not in {encoding}",
            got=repr(shown[:40]),
            expected=f"text in {encoding}",
        )
    validity = column.is_valid().buffers()[1] if column.null_count else None
    buffers = [validity, pa.py_buffer(starts), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(column), buffers, column.null_count)


def _texts(column: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return where each text begins, from 0, and all bytes; null is empty."""
    filled = column.fill_null("") if column.null_count else column
    _, offsets, data = filled.buffers()
    starts = np.frombuffer(offsets, np.int32, len(filled) + 1, filled.offset * 4).astype(np.int64)
    first, end = int(starts[0]), int(starts[-1])
    text = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)[first:end]
    return starts - first, text


_Decoded = tuple[NDArray[np.int32], NDArray[np.uint8], int | None]


def _from_base64(offsets: NDArray[np.int64], text: NDArray[np.uint8]) -> _Decoded:
    sizes = np.diff(offsets)
    if (sizes % 4).any():
        return _refuse(int((sizes % 4 != 0).argmax()))
    values = _VALUES64[text]
    pads = text == _PAD
    # Padding is one or two characters at the end of a text.
    last, before = offsets[1:][sizes > 0] - 1, offsets[1:][sizes > 0] - 2
    allowed = np.zeros(len(text), bool)
    allowed[last] = True
    allowed[before] = pads[last]
    wrong = (values == _BAD) & ~(pads & allowed)
    if wrong.any():
        return _refuse(int(np.searchsorted(offsets, wrong.argmax(), side="right")) - 1)
    values[pads] = 0
    quads = values.reshape(-1, 4).astype(np.uint32)
    words = (quads[:, 0] << 18) | (quads[:, 1] << 12) | (quads[:, 2] << 6) | quads[:, 3]
    data = np.empty((len(words), 3), np.uint8)
    for place, shift in enumerate((16, 8, 0)):
        data[:, place] = (words >> shift) & 0xFF
    kept = ~pads.reshape(-1, 4)[:, 1:].reshape(-1)  # a padded character yields no byte
    ends = np.zeros(len(kept) + 1, np.int32)
    np.cumsum(kept, out=ends[1:])
    return ends[offsets // 4 * 3], data.reshape(-1)[kept], None


def _from_hex(offsets: NDArray[np.int64], text: NDArray[np.uint8]) -> _Decoded:
    sizes = np.diff(offsets)
    if (sizes % 2).any():
        return _refuse(int((sizes % 2 != 0).argmax()))
    values = _VALUES16[text]
    if (values == _BAD).any():
        at = int((values == _BAD).argmax())
        return _refuse(int(np.searchsorted(offsets, at, side="right")) - 1)
    pairs = values.reshape(-1, 2)
    data = (pairs[:, 0] << 4) | pairs[:, 1]
    return (offsets // 2).astype(np.int32), data.astype(np.uint8), None


def _refuse(row: int) -> _Decoded:
    return np.zeros(1, np.int32), np.zeros(0, np.uint8), row


def from_milliseconds(column: pa.Array) -> pa.Array:
    """Return milliseconds since 1970 as times in microseconds, UTC.

    Raises:
        InvalidRecordError: A time does not fit into microseconds.
    """
    try:
        micros = pc.multiply_checked(column, pa.scalar(_MS_PER_US, pa.int64()))
    except pa.ArrowInvalid:
        raise InvalidRecordError(
            "a timestamp does not fit into microseconds",
            got=str(pc.min_max(column)),
            expected="ms since 1970, up to the year 294246",
        ) from None
    return micros.cast(pa.timestamp("us", tz="UTC"))
