"""What an import reads: files one by one, or a table as one."""

import hashlib
import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from streamlog.errors import (
    CorruptDataError,
    FileMissingError,
    InvalidOptionError,
    InvalidRequestError,
)
from streamlog.exchange.file_target import Note
from streamlog.exchange.places import as_files
from streamlog.exchange.positions import NOTE, ExportedFile, positions_in
from streamlog.exchange.streams import FileReader
from streamlog.exchange.text_files import csv_batches, csv_columns, ndjson_batches
from streamlog.exchange.versions import FINGERPRINT_BITS
from streamlog.fs.api import FileKind, FileSystem, OpenMode
from streamlog.fs.files import read_file, stat_directory
from streamlog.records.json_objects import ENCODINGS

__all__ = ["SINK_COLUMNS", "FileUnit", "ImportOptions", "ImportUnit", "chosen", "file_units"]

SINK_COLUMNS: Final = ("key", "value", "headers", "partition", "timestamp")
_ABOUT_THE_SOURCE: Final = ("topic", "offset", "timestampType")
_EXTENSIONS: Final = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
}
_FRONT, _BACK = 4 << 10, 64 << 10  # bytes that tell whether a file has changed
_BATCH_ROWS: Final = 16 << 10
_NOTE_SIZE_MAX: Final = 16 << 20
_MAX_SHOWN: Final = 200  # characters of column names in an error


class ImportOptions(NamedTuple):
    """How an import reads.

    Attributes:
        format: A format of `targets.FORMATS`; None: decided by what is there.
        columns: The name in the source of each column of the sink; None: the same names.
        encoding: Of keys and values in text; None: that of an export, else `utf8`.
        catalog: Name of pyiceberg's catalog.
        table_version: Version of a Delta table, or snapshot of an Iceberg table; None: the last.
    """

    format: str | None = None
    columns: Mapping[str, str] | None = None
    encoding: str | None = None
    catalog: str = "default"
    table_version: int | None = None

    @classmethod
    def parse_columns(cls, text: str | None) -> dict[str, str] | None:
        """Return the columns of a text such as `key,value=payload`.

        Raises:
            InvalidOptionError: A column that a sink does not have, or one given twice.
        """
        if text is None:
            return None
        found: dict[str, str] = {}
        for part in text.split(","):
            sink, equals, source = (each.strip() for each in part.partition("="))
            if sink not in SINK_COLUMNS or sink in found or (equals and not source):
                raise InvalidOptionError(
                    "invalid columns of an import",
                    got=part,
                    expected=f"{', '.join(SINK_COLUMNS)}; each once, or NAME=COLUMN",
                )
            found[sink] = source or sink
        return found


class ImportUnit(Protocol):
    """Rows in an order that is always the same, imported from their first to their last.

    Attributes:
        name: Names it among everything that is ever imported into a topic.
        size: About how many bytes it has.
        fingerprint: Changes when the rows change, as far as a look can tell.
        ignored: Columns that are not imported.
    """

    name: str
    size: int
    fingerprint: int
    ignored: tuple[str, ...]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows with the columns that `write_table` takes.

        Raises:
            InvalidRequestError: A row or a column that cannot be imported.
            CorruptDataError: The file is damaged.
            StorageError: It cannot be read.
        """
        ...


def chosen(
    names: list[str], columns: Mapping[str, str] | None, path: str, *, twins: bool = False
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the columns to import, by their names in a sink, and those that are left out.

    Args:
        names: The columns that are there.
        columns: The wanted ones; None: those that a sink has.
        path: Where, for errors.
        twins: Whether `keyBase64` and `valueBase64` belong to `key` and `value`.

    Raises:
        InvalidRequestError: A wanted column is missing, or there is one that a sink does not know.
    """
    extra = {"keyBase64", "valueBase64"} if twins else set()
    twice = [each for each in names if names.count(each) > 1]
    if twice:
        raise InvalidRequestError(
            f"column {twice[0]!r} appears {names.count(twice[0])} times",
            path=path,
            got=f"columns {_shown(names)}",
            expected="each name once",
        )
    if columns is not None:
        missing = [source for source in columns.values() if source not in names]
        if missing:
            raise InvalidRequestError(
                f"there is no column {missing[0]!r}",
                path=path,
                got=f"columns {_shown(names)}",
                expected=", ".join(columns.values()),
            )
        left = [each for each in names if each not in columns.values() and each not in extra]
        return dict(columns), tuple(left)
    unknown = [each for each in names if each not in {*SINK_COLUMNS, *_ABOUT_THE_SOURCE, *extra}]
    if unknown or "value" not in names:
        raise InvalidRequestError(
            f"unknown column {_shown(unknown[:1])!r}" if unknown else "there is no column 'value'",
            path=path,
            got=f"columns {_shown(names)}",
            expected=f"value, and any of {', '.join(SINK_COLUMNS)}",
            hint="choose and rename columns, for example --columns key=id,value=payload",
        )
    kept: dict[str, str] = {each: each for each in SINK_COLUMNS if each in names}
    return kept, tuple(each for each in names if each not in kept and each not in extra)


def _shown(names: Iterable[str]) -> str:
    """Return names for an error; those of a file in another format may be anything."""
    text = ", ".join(names)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"


# ---- files -----------------------------------------------------------------------------------
def file_units(
    source: str, options: ImportOptions, *, fs: FileSystem | None = None
) -> list["FileUnit"]:
    """Return the files of a source, sorted by name.

    Args:
        source: A file, or a directory of files; also a URL of an object store.
        options: How to read.
        fs: The file system of files; the machine's own by default.

    Raises:
        FileMissingError: There is nothing.
        InvalidRequestError: There are files of several formats or of none that is known, or files
            of an export are missing.
    """
    fs, path = as_files(source, fs=fs)
    found = stat_directory(fs, path)
    if found is None:
        raise FileMissingError("there is nothing to import", path=source)
    if found.kind is FileKind.FILE:
        return [FileUnit(fs, path, options, options.encoding or "utf8")]
    note = _note(fs, path)
    encoding = options.encoding or (note.shape.encoding if note else "utf8")
    names = [each for each in fs.list(path) if not each.startswith((".", "_"))]
    if note is not None:
        exported = [ExportedFile.parse(each) for each in names]
        positions_in((each for each in exported if each is not None), where=path)
    units = [FileUnit(fs, posixpath.join(path, each), options, encoding) for each in names]
    formats = {each.format for each in units}
    if len(formats) > 1:
        raise InvalidRequestError(
            "files of several formats in one directory",
            path=source,
            got=", ".join(sorted(formats)),
            hint="import them file by file",
        )
    return units


def _note(fs: FileSystem, directory: str) -> Note | None:
    path = posixpath.join(directory, NOTE)
    try:
        return Note.decode(read_file(fs, path, max_size=_NOTE_SIZE_MAX), path)
    except FileMissingError:
        return None


class FileUnit:
    """One file; see `ImportUnit`.

    Args:
        fs: Its file system.
        path: Its path.
        options: How to read it.
        encoding: Of keys and values in text.

    Raises:
        InvalidRequestError: Its format is unknown, or it has a column that a sink does not know.
    """

    def __init__(self, fs: FileSystem, path: str, options: ImportOptions, encoding: str) -> None:
        if encoding not in ENCODINGS:
            raise InvalidOptionError(
                "unknown encoding", got=encoding, expected=", ".join(ENCODINGS)
            )
        self._fs, self.name, self._encoding = fs, path, encoding
        extension = posixpath.splitext(path)[1].lower()
        self.format = options.format or _EXTENSIONS.get(extension, "")
        if self.format not in _READERS:
            raise InvalidRequestError(
                "cannot tell the format of a file from its name",
                path=path,
                got=extension or "no extension",
                expected=", ".join(_EXTENSIONS),
                hint="pass --format, or move the file away",
            )
        with self._open() as reader:
            self.size = reader.size
            self.fingerprint = _fingerprint(reader)
            columns, self.ignored = self._choose(reader, options.columns)
        self._columns = columns

    def _open(self) -> FileReader:
        return FileReader(self._fs.open(self.name, OpenMode.READ))

    def _choose(
        self, reader: FileReader, columns: Mapping[str, str] | None
    ) -> tuple[Mapping[str, str] | None, tuple[str, ...]]:
        if self.format == "ndjson":
            return columns, _ABOUT_THE_SOURCE if columns is None else ()
        if self.format == "csv":
            names = csv_columns(reader, self.name)
            return chosen(names, columns, self.name, twins=True)
        with _parquet_errors(self.name):
            names = pq.ParquetFile(reader).schema_arrow.names
        return chosen(names, columns, self.name)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """See `ImportUnit.batches`."""
        with self._open() as reader:
            yield from _READERS[self.format](reader, self.name, self._columns, self._encoding)


def _fingerprint(reader: FileReader) -> int:
    """Return a hash of a file's size, front and end."""
    digest = hashlib.sha256(reader.size.to_bytes(8, "big"))
    digest.update(reader.read(_FRONT) or b"")
    reader.seek(max(0, reader.size - _BACK))
    digest.update(reader.read(_BACK) or b"")
    reader.seek(0)
    return int.from_bytes(digest.digest()[: FINGERPRINT_BITS // 8], "big")


class _parquet_errors:  # noqa: N801 - a context manager
    """Translates what pyarrow raises for a file that is not Parquet, or damaged."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, pa.ArrowException | OSError):
            raise CorruptDataError(
                "the file is not Parquet, or damaged",
                path=self._path,
                got=str(error).partition("\n")[0][:200],
                hint="export or copy it again",
            ) from error


def _parquet_batches(
    reader: FileReader, path: str, columns: Mapping[str, str], encoding: str
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a Parquet file."""
    sources = list(dict.fromkeys(columns.values()))
    with _parquet_errors(path):
        parsed = pq.ParquetFile(reader).iter_batches(_BATCH_ROWS, columns=sources)
        for batch in parsed:
            arrays = [batch.column(batch.schema.get_field_index(each)) for each in columns.values()]
            yield pa.RecordBatch.from_arrays(arrays, names=list(columns))


_READERS: Final[dict[str, Callable[..., Iterator[pa.RecordBatch]]]] = {
    "parquet": _parquet_batches,
    "csv": csv_batches,
    "ndjson": ndjson_batches,
}
