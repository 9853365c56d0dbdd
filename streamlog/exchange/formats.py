"""The formats of exported files: how batches of records become bytes."""

import io
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from streamlog.arrow.schema import COLUMN_NAMES, arrow_schema, choose_columns
from streamlog.errors import InvalidOptionError
from streamlog.exchange.text import as_json_lines, as_text, text_schema
from streamlog.records.json_objects import ENCODINGS
from streamlog.topic import TopicPartition

__all__ = ["FILE_FORMATS", "FormatWriter", "FileShape", "read_columns_of"]

_ROW_GROUP_BYTES: Final = 32 << 20  # of Arrow: small enough to keep, large enough to compress
_COMPRESSION: Final = "zstd"


class FileShape(NamedTuple):
    """What all files of an export have in common.

    Attributes:
        format: `ndjson`, `csv` or `parquet`.
        columns: The columns, in the order of the schema.
        encoding: Of keys, values and header values in text: `utf8`, `base64` or `hex`.
    """

    format: str
    columns: tuple[str, ...]
    encoding: str = "utf8"

    @classmethod
    def of(cls, format: str, columns: str | None, encoding: str = "utf8") -> "FileShape":
        """Return the shape for options as a user gives them.

        Args:
            format: The format.
            columns: Names of columns, separated by commas; None: all, with headers.
            encoding: The encoding.

        Raises:
            InvalidOptionError: A value is unknown, or does not go together with another one.
        """
        if format not in FILE_FORMATS or encoding not in ENCODINGS:
            raise InvalidOptionError(
                "unknown format or encoding of exported files",
                got=f"{format}, {encoding}",
                expected=f"{', '.join(FILE_FORMATS)}; {', '.join(ENCODINGS)}",
            )
        chosen = choose_columns(columns, include_headers=columns is None)
        if format == "ndjson" and chosen != COLUMN_NAMES:
            raise InvalidOptionError(
                "ndjson has all columns, as `cat` prints them",
                got=f"columns {', '.join(chosen)}",
                hint="omit --columns, or export to CSV or Parquet",
            )
        if format == "csv" and len(text_schema(chosen, encoding)) < 2:
            raise InvalidOptionError(
                "CSV with a single column cannot tell a null from an empty line",
                got=f"column {chosen[0]}",
                expected="two columns or more",
                hint=f"--columns {chosen[0]},offset",
            )
        if format == "parquet" and encoding != "utf8":
            raise InvalidOptionError("Parquet holds bytes as they are", got=f"encoding {encoding}")
        return cls(format, chosen, encoding)


class FormatWriter(Protocol):
    """Writes batches of one partition to one file."""

    def write(self, partition: TopicPartition, batch: pa.RecordBatch) -> None:
        """Write records, with all columns that were read."""
        ...

    def close(self) -> None:
        """Write what is left; the stream stays open."""
        ...


def read_columns_of(columns: tuple[str, ...]) -> tuple[str, ...]:
    """Return the columns to read: the chosen ones, and the offset, which names files."""
    return tuple(each for each in COLUMN_NAMES if each in columns or each == "offset")


class _Ndjson:
    def __init__(self, stream: io.BufferedIOBase, shape: FileShape, size: int) -> None:
        self._stream, self._shape = stream, shape

    def write(self, partition: TopicPartition, batch: pa.RecordBatch) -> None:
        self._stream.write(as_json_lines(batch, partition, self._shape.encoding))

    def close(self) -> None:
        self._stream.flush()


class _Csv:
    def __init__(self, stream: io.BufferedIOBase, shape: FileShape, size: int) -> None:
        self._stream, self._shape = stream, shape
        schema = text_schema(shape.columns, shape.encoding)
        # Text is always quoted and null never is, so null and empty differ.
        options = pa_csv.WriteOptions(include_header=True, quoting_style="needed")
        self._writer = pa_csv.CSVWriter(stream, schema, write_options=options)

    def write(self, partition: TopicPartition, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(as_text(batch, self._shape.columns, self._shape.encoding))

    def close(self) -> None:
        self._writer.close()
        self._stream.flush()


class _Parquet:
    def __init__(self, stream: io.BufferedIOBase, shape: FileShape, size: int) -> None:
        self._stream = stream
        self._schema = arrow_schema(shape.columns)
        self._group_bytes = min(_ROW_GROUP_BYTES, size)
        self._writer = pq.ParquetWriter(stream, self._schema, compression=_COMPRESSION)
        self._waiting: list[pa.RecordBatch] = []
        self._size = 0

    def write(self, partition: TopicPartition, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch.select(self._schema.names))
        self._size += batch.nbytes
        if self._size >= self._group_bytes:
            self._write_group()

    def _write_group(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting, self._schema))
            self._waiting, self._size = [], 0

    def close(self) -> None:
        self._write_group()
        self._writer.close()
        self._stream.flush()


FILE_FORMATS: Final[dict[str, Callable[[io.BufferedIOBase, FileShape, int], FormatWriter]]] = {
    "ndjson": _Ndjson,
    "csv": _Csv,
    "parquet": _Parquet,
}
