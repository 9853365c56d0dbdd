"""Opening the source of an import by its format, or by what is there."""

from collections.abc import Sequence
from typing import Final

from streamlog.errors import InvalidOptionError
from streamlog.exchange.import_source import ImportOptions, ImportUnit, file_units
from streamlog.exchange.places import as_files
from streamlog.exchange.targets import FORMATS, TABLE_FORMATS
from streamlog.fs.api import FileSystem

__all__ = ["import_units"]

_DELTA_LOG: Final = "_delta_log"


def import_units(
    source: str, options: ImportOptions, *, fs: FileSystem | None = None
) -> Sequence[ImportUnit]:
    """Return what a source consists of.

    Args:
        source: A file, a directory of files or of a Delta table, a URL of either; of `iceberg`,
            `NAMESPACE.TABLE`.
        options: How to read.
        fs: The file system of files; the machine's own by default.

    Raises:
        FileMissingError: There is nothing.
        InvalidRequestError: The format is unknown, or a file or a column cannot be imported.
        CorruptDataError: A file is damaged.
        StorageError: It cannot be read.
    """
    if options.format not in (None, *FORMATS):
        raise InvalidOptionError(
            "unknown format of an import", got=options.format, expected=", ".join(FORMATS)
        )
    if options.format is None and _is_delta(source, fs):
        options = options._replace(format="delta")
    if options.format in TABLE_FORMATS:
        if options.encoding is not None:
            raise InvalidOptionError("a table holds bytes as they are", got="an encoding")
        from streamlog.exchange.table_source import table_unit

        return [table_unit(source, options)]
    if options.table_version is not None:
        raise InvalidOptionError("only a table has versions", got=str(options.table_version))
    return file_units(source, options, fs=fs)


def _is_delta(source: str, fs: FileSystem | None) -> bool:
    fs, path = as_files(source, fs=fs)
    return fs.stat(f"{path.rstrip('/')}/{_DELTA_LOG}") is not None
