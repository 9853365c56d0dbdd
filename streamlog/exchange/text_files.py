"""Reading CSV and ndjson as columns of a sink, with pyarrow's parsers and bounded memory."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json

from streamlog.arrow.schema import HEADERS
from streamlog.errors import InvalidRecordError, LimitExceededError
from streamlog.exchange.streams import FileReader
from streamlog.exchange.text import BASE64_SUFFIX, BINARY, decoded, from_milliseconds

__all__ = ["csv_batches", "csv_columns", "ndjson_batches"]

_BLOCK: Final = 8 << 20
_LARGEST_BLOCK: Final = 1 << 30  # of a line of text; offsets within a column have 32 bits
_HEADER_SIZE_MAX: Final = 1 << 20  # of the line that names the columns
_PAIRS: Final = pa.list_(
    pa.struct([("key", pa.string()), ("value", pa.string()), ("valueBase64", pa.string())])
)
# The fields of a line that `cat` prints.
_FIELDS: Final = {
    "topic": pa.string(),
    "partition": pa.int64(),
    "offset": pa.int64(),
    "timestamp": pa.int64(),
    "timestampType": pa.string(),
    "key": pa.string(),
    "keyBase64": pa.string(),
    "value": pa.string(),
    "valueBase64": pa.string(),
    HEADERS: _PAIRS,
}
_NUMBERS: Final = {"partition": pa.int64(), "timestamp": pa.int64()}


# ---- CSV -------------------------------------------------------------------------------------
def csv_columns(reader: FileReader, path: str) -> list[str]:
    """Return the names in the first line of a CSV file.

    Raises:
        InvalidRecordError: The file is empty, or its first line is none of CSV.
    """
    reader.seek(0)
    front = reader.read(_HEADER_SIZE_MAX) or b""
    line, newline, _ = front.partition(b"\n")
    if not line.strip() or (not newline and len(front) == _HEADER_SIZE_MAX):
        raise InvalidRecordError(
            "the first line of a CSV file names its columns",
            path=path,
            got=repr(line[:60]),
            expected="key,value or the like",
        )
    try:
        table = pa_csv.read_csv(pa.BufferReader(line + b"\n"))
    except pa.ArrowInvalid as error:
        raise _bad(path, error, "the line that names its columns") from None
    return list(table.schema.names)


def csv_batches(
    reader: FileReader, path: str, columns: Mapping[str, str], encoding: str
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a CSV file as columns of a sink.

    Args:
        reader: The file.
        path: Its path, for errors.
        columns: The name in the file of each column of the sink.
        encoding: Of keys, values and header values: `utf8`, `base64` or `hex`.

    Raises:
        InvalidRecordError: A row is not CSV, or a field is not what its column takes.
        LimitExceededError: A row is larger than a gigabyte.
    """
    names = csv_columns(reader, path)
    wanted = _with_base64(columns, names, encoding)
    kinds = {source: _NUMBERS.get(sink, pa.string()) for sink, source in wanted.items()}
    block, skip = _BLOCK, 0
    while True:
        try:
            for batch in _parsed_csv(reader, kinds, block, skip):
                skip += batch.num_rows
                yield _as_sink(batch, wanted, encoding, path, skip - batch.num_rows)
            return
        except pa.ArrowInvalid as error:
            # A row that is larger than a block: begin again with a larger one.
            if "straddl" not in str(error):
                raise _bad(path, error, "a row of CSV") from None
            if block >= _LARGEST_BLOCK:
                raise LimitExceededError(
                    "a row of CSV is too large", path=path, expected=f"at most {block} bytes"
                ) from None
            block *= 8
            block = min(block, _LARGEST_BLOCK)


def _parsed_csv(
    reader: FileReader, kinds: Mapping[str, pa.DataType], block: int, skip: int
) -> Iterator[pa.RecordBatch]:
    """Yield rows after the first `skip` ones."""
    reader.seek(0)
    parsed = pa_csv.open_csv(
        pa.PythonFile(_Unclosed(reader), mode="r"),
        read_options=pa_csv.ReadOptions(block_size=block),
        parse_options=pa_csv.ParseOptions(newlines_in_values=True),
        convert_options=pa_csv.ConvertOptions(
            check_utf8=True,
            column_types=dict(kinds),
            include_columns=list(kinds),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    for batch in parsed:
        left = min(skip, batch.num_rows)
        skip -= left
        if batch.num_rows > left:
            yield batch.slice(left)


class _Unclosed:
    """A reader that pyarrow does not close."""

    closed = False

    def __init__(self, reader: FileReader) -> None:
        self.read, self.seek, self.tell = reader.read, reader.seek, reader.tell

    def close(self) -> None:
        """Do nothing."""


# ---- ndjson ----------------------------------------------------------------------------------
def ndjson_batches(
    reader: FileReader, path: str, columns: Mapping[str, str] | None, encoding: str
) -> Iterator[pa.RecordBatch]:
    """Yield the lines of an ndjson file as columns of a sink.

    Args:
        reader: The file.
        path: Its path, for errors.
        columns: The name in the file of each column of the sink; None: a file as `cat` prints it,
            in which any other field is an error.
        encoding: Of keys, values and header values: `utf8`, `base64` or `hex`.

    Raises:
        InvalidRecordError: A line is not such an object.
        LimitExceededError: A line is larger than a gigabyte.
    """
    if columns is None:
        fields, behavior = dict(_FIELDS), "error"
        sinks = {name: name for name in ("key", "value", "partition", "timestamp", HEADERS)}
    else:
        behavior, sinks = "ignore", dict(columns)
        kinds = {"headers": _PAIRS, **_NUMBERS}
        fields = {source: kinds.get(sink, pa.string()) for sink, source in columns.items()}
    wanted = _with_base64(sinks, list(fields), encoding)
    options = pa_json.ParseOptions(
        explicit_schema=pa.schema(list(fields.items())),
        newlines_in_values=False,
        unexpected_field_behavior=behavior,
    )
    rows = 0
    for block in _blocks(reader, path):
        size = pa_json.ReadOptions(use_threads=False, block_size=len(block) + 1)
        try:
            table = pa_json.read_json(pa.BufferReader(block), size, options)
            table.validate(full=True)  # the parser does not check that text is UTF-8
        except pa.ArrowException as error:
            raise _bad(path, error, f"an object per line, after {rows} lines that are") from None
        for batch in table.combine_chunks().to_batches():
            yield _as_sink(batch, wanted, encoding, path, rows)
            rows += batch.num_rows


def _blocks(reader: FileReader, path: str) -> Iterator[bytes]:
    """Yield whole lines, about `_BLOCK` bytes at a time; none without anything but space."""
    reader.seek(0)
    rest = b""
    while True:
        read = reader.read(_BLOCK)
        if not read:
            if rest.strip():
                yield rest
            return
        whole, newline, begun = read.rpartition(b"\n")
        if not newline:
            rest += read
            if len(rest) > _LARGEST_BLOCK:
                raise LimitExceededError(
                    "a line is too large", path=path, expected=f"at most {_LARGEST_BLOCK} bytes"
                )
            continue
        block = b"".join((rest, whole, newline))
        if block.strip():
            yield block
        rest = begun


# ---- both ------------------------------------------------------------------------------------
def _with_base64(columns: Mapping[str, str], names: Sequence[str], encoding: str) -> dict[str, str]:
    """Return the columns to read, with `keyBase64` and `valueBase64` where a file has them."""
    wanted = dict(columns)
    for name in BINARY:
        twin = name + BASE64_SUFFIX
        if encoding == "utf8" and columns.get(name) == name and twin in names:
            wanted[twin] = twin
    return wanted


def _as_sink(
    batch: pa.RecordBatch, columns: Mapping[str, str], encoding: str, path: str, row: int
) -> pa.RecordBatch:
    """Return rows with the columns that `write_table` takes."""
    found = {
        sink: batch.column(batch.schema.get_field_index(source))
        for sink, source in columns.items()
        if source in batch.schema.names
    }
    made: dict[str, pa.Array] = {}
    try:
        for name in BINARY:
            if name in found:
                made[name] = _merged(found[name], found.get(name + BASE64_SUFFIX), encoding, name)
        if "partition" in found:
            made["partition"] = found["partition"]
        if "timestamp" in found:
            made["timestamp"] = from_milliseconds(found["timestamp"])
        if HEADERS in found:
            made[HEADERS] = _headers(found[HEADERS], encoding)
    except InvalidRecordError as error:
        error.path = path
        error.what = f"{error.what}, counted from row {row}"
        raise
    made.setdefault("value", pa.nulls(batch.num_rows, pa.binary()))
    return pa.RecordBatch.from_arrays(list(made.values()), names=list(made))


def _merged(text: pa.Array, base64: pa.Array | None, encoding: str, name: str) -> pa.Array:
    """Return the bytes of a column and of its twin in base64, at most one of which has a value."""
    column = decoded(text, encoding, name)
    if base64 is None or base64.null_count == len(base64):
        return column
    both = pc.and_(text.is_valid(), base64.is_valid())
    if pc.any(both).as_py():
        raise InvalidRecordError(
            f"row {both.index(True).as_py()}: both {name} and {name}{BASE64_SUFFIX} have a value",
            expected="one of them",
        )
    return pc.coalesce(column, decoded(base64, "base64", name + BASE64_SUFFIX))


def _headers(column: pa.Array, encoding: str) -> pa.Array:
    """Return headers as a sink takes them, from lists of pairs or from such a list as JSON."""
    lists = _parsed_headers(column) if pa.types.is_string(column.type) else column
    pairs = lists.flatten()
    offsets = np.zeros(len(lists) + 1, np.int32)
    counts = pc.fill_null(pc.list_value_length(lists), 0)
    np.cumsum(counts.to_numpy(zero_copy_only=False), out=offsets[1:])
    keys, values = pairs.field(0), pairs.field(1)
    twin = pairs.field(2) if encoding == "utf8" else None
    value = _merged(values, twin, encoding, "headers.value")
    kept = pa.StructArray.from_arrays([keys, value], names=["key", "value"])
    if pairs.null_count or keys.null_count:
        raise InvalidRecordError(
            "a header is null or has no key", expected='[{"key":…,"value":…}, …]'
        )
    starts = pa.Array.from_buffers(pa.int32(), len(offsets), [None, pa.py_buffer(offsets)])
    return pa.ListArray.from_arrays(starts, kept)


def _parsed_headers(column: pa.Array) -> pa.Array:
    """Return lists of pairs from their JSON text, null and empty for none."""
    if column.null_count == len(column):
        return pa.nulls(len(column), _PAIRS)
    texts = column.fill_null("[]")
    lines = pc.binary_join_element_wise('{"h":', texts, "}", "")
    joined = pc.binary_join(pa.ListArray.from_arrays([0, len(lines)], lines), "\n")[0]
    block = joined.as_buffer()
    try:
        table = pa_json.read_json(
            pa.BufferReader(block),
            pa_json.ReadOptions(use_threads=False, block_size=block.size + 1),
            pa_json.ParseOptions(
                explicit_schema=pa.schema([("h", _PAIRS)]), unexpected_field_behavior="error"
            ),
        )
        table.validate(full=True)
    except pa.ArrowException as error:
        raise _bad_headers(str(error).partition("\n")[0]) from None
    if table.num_rows != len(column):
        raise _bad_headers(f"{table.num_rows} lists in {len(column)} rows")
    return table.column(0).combine_chunks()


def _bad_headers(got: str) -> InvalidRecordError:
    return InvalidRecordError(
        "column headers is no list of headers in JSON",
        got=got[:200],
        expected='[{"key":…,"value":…}, …], or nothing',
    )


def _bad(path: str, error: BaseException, expected: str) -> InvalidRecordError:
    got = str(error).partition("\n")[0]
    return InvalidRecordError(
        "the file cannot be read", path=path, got=json.dumps(got)[1:300], expected=expected
    )
