"""Opening the target of an export by its format."""

from typing import Final, NamedTuple

from streamlog.arrow.schema import choose_columns
from streamlog.errors import InvalidOptionError
from streamlog.exchange.file_target import DEFAULT_FILE_SIZE, FileTarget
from streamlog.exchange.formats import FILE_FORMATS, FileShape, read_columns_of
from streamlog.exchange.places import open_place
from streamlog.exchange.target import ExportTarget
from streamlog.fs.api import FileSystem
from streamlog.store.urls import absolute
from streamlog.topic import TopicPartition

__all__ = ["FORMATS", "TABLE_FORMATS", "TargetOptions", "open_target"]

TABLE_FORMATS: Final = ("delta", "iceberg")
FORMATS: Final = (*FILE_FORMATS, *TABLE_FORMATS)


class TargetOptions(NamedTuple):
    """How an export writes.

    Attributes:
        format: One of `FORMATS`.
        columns: Names of columns, separated by commas; None: all, with headers.
        encoding: Of keys and values in text: `utf8`, `base64` or `hex`.
        file_size: Target size of files in bytes.
        catalog: Name of pyiceberg's catalog.
    """

    format: str = "parquet"
    columns: str | None = None
    encoding: str = "utf8"
    file_size: int = DEFAULT_FILE_SIZE
    catalog: str = "default"


def open_target(
    target: str,
    options: TargetOptions,
    partitions: list[TopicPartition],
    *,
    fs: FileSystem | None = None,
) -> tuple[ExportTarget, tuple[str, ...]]:
    """Return a target, and the columns to read for it.

    Args:
        target: A directory or URL; of `iceberg`, `NAMESPACE.TABLE`.
        options: How to write.
        partitions: What will be exported.
        fs: The file system of directories; the machine's own by default.

    Raises:
        InvalidRequestError: An option is invalid, or a library is not installed.
    """
    if options.format in FILE_FORMATS:
        _check_name(target, options.format)
        shape = FileShape.of(options.format, options.columns, options.encoding)
        place = open_place(target, fs=fs)
        return FileTarget(place, shape, options.file_size), read_columns_of(shape.columns)
    if options.format not in TABLE_FORMATS:
        raise InvalidOptionError(
            "unknown format of an export", got=options.format, expected=", ".join(FORMATS)
        )
    if options.encoding != "utf8":
        raise InvalidOptionError(
            "a table holds bytes as they are", got=f"encoding {options.encoding}"
        )
    columns = choose_columns(options.columns, include_headers=options.columns is None)
    read = read_columns_of(columns)
    if options.format == "delta":
        from streamlog.exchange.delta import DeltaTarget

        path = absolute(target)
        return DeltaTarget(path, columns, options.file_size, partitions=partitions), read
    from streamlog.exchange.iceberg import IcebergTarget, open_catalog

    catalog = open_catalog(options.catalog)
    return IcebergTarget(catalog, target, columns, options.file_size), read


def _check_name(target: str, wanted: str) -> None:
    """Refuse a directory whose name says that its files have another format."""
    _, dot, named = target.rstrip("/").rpartition("/")[2].rpartition(".")
    if dot and named in FORMATS and named != wanted:
        raise InvalidOptionError(
            "the name of the target says another format",
            path=target,
            got=f"files of {wanted}",
            hint=f"pass --format {named}, or another name",
        )
