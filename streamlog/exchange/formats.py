"""The formats of exported files: how batches of records become bytes."""

import io
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from streamlog.arrow.schema import COLUMN_NAMES, ERROR, choose_columns
from streamlog.errors import InvalidOptionError
from streamlog.exchange.column_types import describe
from streamlog.exchange.decoded_text import as_cells, as_decoded_json_lines, cell_type
from streamlog.exchange.export_columns import ExportColumns
from streamlog.exchange.text import as_json_lines, as_text, text_schema
from streamlog.records.json_objects import ENCODINGS
from streamlog.topic import TopicPartition

__all__ = ["FILE_FORMATS", "TEXT_FORMATS", "FileShape", "FormatWriter"]

TEXT_FORMATS: Final = ("ndjson", "csv")
_ROW_GROUP_BYTES: Final = 32 << 20  # of Arrow: small enough to keep, large enough to compress
_COMPRESSION: Final = "zstd"


class FileShape(NamedTuple):
    """What all files of an export have in common.

    Attributes:
        format: `ndjson`, `csv` or `parquet`.
        columns: The columns, in the order of the schema.
        encoding: Of keys, values and header values in text: `utf8`, `base64` or `hex`.
        decoded: The names of decoded columns, with their types as text.
    """

    format: str
    columns: tuple[str, ...]
    encoding: str = "utf8"
    decoded: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(
        cls, format: str, columns: str | None, encoding: str = "utf8", *, is_decoded: bool = False
    ) -> "FileShape":
        """Return the shape for options as a user gives them, without the types of decoded columns.

        Args:
            format: The format.
            columns: Names of columns, separated by commas; None: all, with headers.
            encoding: The encoding.
            is_decoded: Whether keys or values are decoded, so that there is a column `_error`.

        Raises:
            InvalidOptionError: A value is unknown, or does not go together with another one.
        """
        if format not in FILE_FORMATS or encoding not in ENCODINGS:
            raise InvalidOptionError(
                "unknown format or encoding of exported files",
                got=f"{format}, {encoding}",
                expected=f"{', '.join(FILE_FORMATS)}; {', '.join(ENCODINGS)}",
            )
        chosen = choose_columns(columns, include_headers=columns is None, has_errors=is_decoded)
        if format == "ndjson" and chosen not in (COLUMN_NAMES, (*COLUMN_NAMES, ERROR)):
            raise InvalidOptionError(
                "ndjson has all columns, as `cat` prints them",
                got=f"columns {', '.join(chosen)}",
                hint="omit --columns, or export to CSV or Parquet",
            )
        if format == "parquet" and encoding != "utf8":
            raise InvalidOptionError("Parquet holds bytes as they are", got=f"encoding {encoding}")
        return cls(format, chosen, encoding)

    def with_types(self, columns: ExportColumns) -> "FileShape":
        """Return the shape with the types of decoded columns.

        Raises:
            InvalidOptionError: It is CSV with a single column.
        """
        if self.format == "csv":
            cells = dict.fromkeys(columns.decoded, pa.string())
            if len(text_schema(self.columns, self.encoding, cells)) < 2:
                raise InvalidOptionError(
                    "CSV with a single column cannot tell a null from an empty line",
                    got=f"column {self.columns[0]}",
                    expected="two columns or more",
                    hint=f"--columns {self.columns[0]},offset",
                )
        decoded = tuple(
            (name, "JSON" if name in columns.any_json else describe(kind))
            for name, kind in columns.decoded.items()
        )
        return self._replace(decoded=decoded)


class FormatWriter(Protocol):
    """Writes batches of one partition to one file."""

    def write(self, partition: TopicPartition, batch: pa.RecordBatch) -> None:
        """Write records, with all columns that were read."""
        ...

    def close(self) -> None:
        """Write what is left; the stream stays open."""
        ...


class _Ndjson:
    def __init__(
        self, stream: io.BufferedIOBase, shape: FileShape, columns: ExportColumns, size: int
    ) -> None:
        self._stream, self._shape = stream, shape
        self._decoded = {name: name in columns.any_json for name in columns.decoded}

    def write(self, partition: TopicPartition, batch: pa.RecordBatch) -> None:
        if self._decoded:
            encoding = self._shape.encoding
            lines = as_decoded_json_lines(batch, partition, encoding, self._decoded)
        else:
            lines = as_json_lines(batch, partition, self._shape.encoding)
        self._stream.write(lines)

    def close(self) -> None:
        self._stream.flush()


class _Csv:
    def __init__(
        self, stream: io.BufferedIOBase, shape: FileShape, columns: ExportColumns, size: int
    ) -> None:
        self._stream, self._shape = stream, shape
        self._cells = [each for each in (*columns.decoded, ERROR) if each in shape.columns]
        types = {name: cell_type(columns.schema.field(name).type) for name in self._cells}
        schema = text_schema(shape.columns, shape.encoding, types)
        # Text is always quoted and null never is, so null and empty differ.
        options = pa_csv.WriteOptions(include_header=True, quoting_style="needed")
        self._writer = pa_csv.CSVWriter(stream, schema, write_options=options)

    def write(self, partition: TopicPartition, batch: pa.RecordBatch) -> None:
        cells = as_cells(batch, self._cells)
        rows = as_text(batch, self._shape.columns, self._shape.encoding, cells)
        self._writer.write_batch(rows)

    def close(self) -> None:
        self._writer.close()
        self._stream.flush()


class _Parquet:
    def __init__(
        self, stream: io.BufferedIOBase, shape: FileShape, columns: ExportColumns, size: int
    ) -> None:
        self._stream, self._schema = stream, columns.schema
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


_Open: TypeAlias = Callable[[io.BufferedIOBase, FileShape, ExportColumns, int], FormatWriter]
FILE_FORMATS: Final[dict[str, _Open]] = {
    "ndjson": _Ndjson,
    "csv": _Csv,
    "parquet": _Parquet,
}
