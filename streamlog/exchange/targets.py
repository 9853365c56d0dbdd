"""Opening the target of an export by its format."""

from typing import Final, NamedTuple

from streamlog.arrow.decoding_arguments import DecodingArguments
from streamlog.arrow.schema import choose_columns
from streamlog.errors import InvalidOptionError
from streamlog.exchange.export_columns import ExportColumns
from streamlog.exchange.file_target import DEFAULT_FILE_SIZE, FileTarget
from streamlog.exchange.formats import FILE_FORMATS, TEXT_FORMATS, FileShape
from streamlog.exchange.libraries import path_of_table
from streamlog.exchange.places import open_place
from streamlog.exchange.target import ExportTarget
from streamlog.fs.api import FileSystem
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
        decoding: How keys and values are decoded; None: they stay bytes.
    """

    format: str = "parquet"
    columns: str | None = None
    encoding: str = "utf8"
    file_size: int = DEFAULT_FILE_SIZE
    catalog: str = "default"
    decoding: DecodingArguments | None = None


def open_target(
    target: str,
    options: TargetOptions,
    partitions: list[TopicPartition],
    *,
    fs: FileSystem | None = None,
) -> tuple[ExportTarget, ExportColumns]:
    """Return a target, and the columns to read for it.

    Args:
        target: A directory or URL; of `iceberg`, `NAMESPACE.TABLE`.
        options: How to write.
        partitions: What will be exported.
        fs: The file system of directories; the machine's own by default.

    Raises:
        InvalidRequestError: An option is invalid, or a library is not installed.
        UnknownSchemaError: The schema registry does not know the subject.
        RegistryError: It cannot be reached.
    """
    format = options.format
    if format not in FORMATS:
        raise InvalidOptionError(
            "unknown format of an export", got=format, expected=", ".join(FORMATS)
        )
    decoding = None
    if options.decoding is not None:
        topics = {each.topic for each in partitions}
        topic = topics.pop() if len(topics) == 1 else None
        decoding = options.decoding.resolve(topic, allows_any_json=format in TEXT_FORMATS)
    if format in FILE_FORMATS:
        _check_name(target, format)
        shape = FileShape.of(
            format, options.columns, options.encoding, is_decoded=decoding is not None
        )
        columns = ExportColumns(shape.columns, format, decoding)
        return FileTarget(open_place(target, fs=fs), shape, columns, options.file_size), columns
    if options.encoding != "utf8":
        raise InvalidOptionError(
            "a table holds bytes as they are", got=f"encoding {options.encoding}"
        )
    wanted = choose_columns(
        options.columns,
        include_headers=options.columns is None,
        has_errors=decoding is not None,
    )
    columns = ExportColumns(wanted, format, decoding)
    return _open_table(target, options, columns, partitions), columns


def _open_table(
    target: str, options: TargetOptions, columns: ExportColumns, partitions: list[TopicPartition]
) -> ExportTarget:
    if options.format == "delta":
        from streamlog.exchange.delta import DeltaTarget

        path = path_of_table(target)
        return DeltaTarget(path, columns.schema, options.file_size, partitions=partitions)
    from streamlog.exchange.iceberg import IcebergTarget, open_catalog

    catalog = open_catalog(options.catalog)
    return IcebergTarget(catalog, target, columns.schema, options.file_size)


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
