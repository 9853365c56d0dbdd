"""Importing a Delta or an Iceberg table: its rows at one version, in the order of their offsets.

A table has no order. One with columns `partition` and `offset` is read partition by partition in
the order of offsets, file by file: a first pass over these two columns finds which offsets of which
partition each file has. Any other table is read in the order of its files' paths.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streamlog.errors import FileMissingError, InvalidRequestError
from streamlog.exchange.delta import delta_failure
from streamlog.exchange.iceberg import iceberg_failure, open_catalog
from streamlog.exchange.import_source import ImportOptions, ImportUnit, chosen
from streamlog.exchange.libraries import load_library, path_of_table
from streamlog.exchange.versions import FINGERPRINT_BITS

__all__ = ["TableFile", "TableUnit", "ordered", "table_unit"]

_ORDER: Final = ("partition", "offset")
_MASK: Final = (1 << FINGERPRINT_BITS) - 1
_SORTED_BYTES: Final = 1 << 30  # of files that are sorted together
_BATCH_ROWS: Final = 16 << 10


class TableFile(ABC):
    """One data file of a table at one version.

    Attributes:
        path: Its path, for the order of files and for errors.
        size: Its bytes.
    """

    path: str
    size: int

    @abstractmethod
    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield its rows, always in the same order."""


class TableUnit:
    """All rows of a table at one version; see `ImportUnit`.

    Args:
        name: The table.
        fingerprint: Derived from its version.
        files: Its files.
        names: Its columns.
        columns: The name in the table of each column of a sink; None: the same names.
    """

    def __init__(
        self,
        name: str,
        fingerprint: int,
        files: Sequence[TableFile],
        names: list[str],
        columns: Mapping[str, str] | None,
    ) -> None:
        self.name, self.fingerprint = name, fingerprint & _MASK
        self._files = sorted(files, key=lambda file: file.path)
        self.size = sum(each.size for each in files)
        self._columns, self.ignored = chosen(names, columns, name)
        self._has_order = all(each in names for each in _ORDER)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """See `ImportUnit.batches`."""
        sources = list(dict.fromkeys(self._columns.values()))
        if self._has_order:
            batches = ordered(self._files, sources, self.name)
        else:
            batches = (batch for file in self._files for batch in file.batches(sources))
        for batch in batches:
            arrays = [
                batch.column(batch.schema.get_field_index(each)) for each in self._columns.values()
            ]
            yield pa.RecordBatch.from_arrays(arrays, names=list(self._columns))


class _Run(NamedTuple):
    """The rows of one partition in one file."""

    partition: int
    first: int
    last: int
    file: int
    is_sorted: bool
    is_alone: bool


def ordered(
    files: Sequence[TableFile], columns: Sequence[str], name: str
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of files by partition and offset.

    Writers of tables may divide the rows of a commit among several files in turn. Such files are
    read together, into memory.

    Args:
        files: The files.
        columns: The columns to yield.
        name: The table, for errors.

    Raises:
        InvalidRequestError: An offset comes twice, too many files hold offsets in turn, or a row
            has no partition or offset.
    """
    wanted = list(dict.fromkeys((*columns, *_ORDER)))
    runs = sorted(run for at, file in enumerate(files) for run in _runs(file, at))
    for group in _groups(runs):
        found = [_rows(files[run.file], run, wanted) for run in group]
        if len(group) == 1 and group[0].is_sorted:
            yield from found[0]
            continue
        size = sum(files[run.file].size for run in group)
        if size > _SORTED_BYTES:
            raise InvalidRequestError(
                f"files of the table hold offsets of partition {group[0].partition} in turn",
                path=name,
                got=f"{len(group)} files of {size} bytes",
                expected=f"at most {_SORTED_BYTES} bytes to sort in memory",
                hint="rewrite the table sorted by partition and offset",
            )
        table = pa.Table.from_batches([batch for batches in found for batch in batches])
        table = table.sort_by("offset")
        _check_unique(table.column("offset"), group[0].partition, name)
        yield from table.to_batches(max_chunksize=_BATCH_ROWS)


def _groups(runs: Sequence[_Run]) -> Iterator[list[_Run]]:
    """Yield the runs that overlap together; most groups have one."""
    group: list[_Run] = []
    for run in runs:
        overlaps = any(run.partition == each.partition and run.first <= each.last for each in group)
        if group and not overlaps:
            yield group
            group = []
        group.append(run)
    if group:
        yield group


def _check_unique(offsets: pa.ChunkedArray, partition: int, name: str) -> None:
    numbers = offsets.cast(pa.int64()).to_numpy()
    again = np.flatnonzero(np.diff(numbers) == 0)
    if again.size:
        raise InvalidRequestError(
            f"the table has an offset of partition {partition} twice",
            path=name,
            offset=int(numbers[again[0]]),
            hint="remove the copies",
        )


def _rows(file: TableFile, run: _Run, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    batches = file.batches(columns)
    return batches if run.is_alone else _of_partition(batches, run.partition)


def _of_partition(batches: Iterator[pa.RecordBatch], partition: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        column = batch.column(batch.schema.get_field_index("partition"))
        found = batch.filter(pc.equal(column, partition))
        if found.num_rows:
            yield found


def _runs(file: TableFile, at: int) -> Iterator[_Run]:
    """Yield a run for each partition of a file, after a look at its offsets."""
    numbers: list[NDArray[np.int64]] = []
    offsets: list[NDArray[np.int64]] = []
    for batch in file.batches(_ORDER):
        for name, into in zip(_ORDER, (numbers, offsets), strict=True):
            column = batch.column(batch.schema.get_field_index(name))
            if column.null_count or not pa.types.is_integer(column.type):
                raise InvalidRequestError(
                    f"column {name} of the table does not tell the order of rows",
                    path=file.path,
                    got=f"{column.type} with {column.null_count} nulls",
                    expected="an integer in each row",
                    hint="import from a table without this column",
                )
            into.append(column.cast(pa.int64()).to_numpy(zero_copy_only=False))
    if not numbers:
        return
    partition, offset = np.concatenate(numbers), np.concatenate(offsets)
    found = np.unique(partition).tolist()
    for number in found:
        mine = offset if len(found) == 1 else offset[partition == number]
        steps = np.diff(mine)
        first, last = int(mine.min()), int(mine.max())
        yield _Run(number, first, last, at, bool((steps > 0).all()), len(found) == 1)


def table_unit(source: str, options: ImportOptions) -> ImportUnit:
    """Return a table as something to import.

    Args:
        source: The directory or URL of a Delta table; `NAMESPACE.TABLE` of an Iceberg table.
        options: How to read.

    Raises:
        FileMissingError: There is no such table or version.
        InvalidRequestError: A column is missing or unknown, or a library is not installed.
        StorageError: The table cannot be read.
    """
    return _delta(source, options) if options.format == "delta" else _iceberg(source, options)


# ---- Delta -----------------------------------------------------------------------------------
class _Fragment(TableFile):
    """A file of a Delta table."""

    def __init__(self, fragment: Any, schema: pa.Schema, table: str, size: int) -> None:
        self.path, self.size = fragment.path, size
        self._fragment, self._schema, self._table = fragment, schema, table

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """See `TableFile.batches`."""
        try:
            yield from self._fragment.to_batches(schema=self._schema, columns=list(columns))
        except (pa.ArrowException, OSError) as error:
            raise delta_failure(error, "read", self._table) from error


def _delta(source: str, options: ImportOptions) -> ImportUnit:
    deltalake = load_library("deltalake", "Delta tables")
    path = path_of_table(source)
    try:
        if not deltalake.DeltaTable.is_deltatable(path):
            raise FileMissingError("there is no Delta table", path=path)
        table = deltalake.DeltaTable(path, version=options.table_version)
        data = table.to_pyarrow_dataset()
        added = table.get_add_actions()
        paths, bytes_of = (added.column(each).to_pylist() for each in ("path", "size_bytes"))
        sizes = dict(zip(paths, bytes_of, strict=True))
        files = [
            _Fragment(each, data.schema, path, sizes.get(each.path, 0))
            for each in data.get_fragments()
        ]
    except Exception as error:
        raise delta_failure(error, "open", path) from error
    return TableUnit(path, table.version(), files, list(data.schema.names), options.columns)


# ---- Iceberg ---------------------------------------------------------------------------------
class _Task(TableFile):
    """A file of an Iceberg table, with its deleted rows left out."""

    def __init__(self, task: Any, table: Any, name: str) -> None:
        self.path, self.size = task.file.file_path, task.file.file_size_in_bytes
        self._task, self._table, self._name = task, table, name

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """See `TableFile.batches`."""
        reading = load_library("pyiceberg.io.pyarrow", "Iceberg tables")
        expressions = load_library("pyiceberg.expressions", "Iceberg tables")
        table = self._table
        try:
            scan = reading.ArrowScan(
                table.metadata, table.io, table.schema().select(*columns), expressions.AlwaysTrue()
            )
            yield from scan.to_record_batches([self._task])
        except Exception as error:
            raise iceberg_failure(error, "read", self._name) from error


def _iceberg(source: str, options: ImportOptions) -> ImportUnit:
    catalog = open_catalog(options.catalog)
    exceptions = load_library("pyiceberg.exceptions", "Iceberg tables")
    try:
        table = catalog.load_table(source)
        snapshot = options.table_version
        if snapshot is None and table.current_snapshot() is not None:
            snapshot = table.current_snapshot().snapshot_id
        if snapshot is not None and table.snapshot_by_id(snapshot) is None:
            raise FileMissingError(f"the table has no snapshot {snapshot}", path=source)
        tasks = [] if snapshot is None else table.scan(snapshot_id=snapshot).plan_files()
        files = [_Task(each, table, source) for each in tasks]
        names = list(table.schema().as_arrow().names)
    except (exceptions.NoSuchTableError, exceptions.NoSuchNamespaceError) as error:
        raise FileMissingError("there is no Iceberg table", path=source) from error
    except Exception as error:
        raise iceberg_failure(error, "open", source) from error
    name = f"iceberg {options.catalog} {source}"
    return TableUnit(name, snapshot or 0, files, names, options.columns)
