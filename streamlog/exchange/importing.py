"""Importing files and tables into a topic, each row exactly once.

ask the root how far each file is
for each file: skip the rows that are committed
collect some rows, commit them with the number of rows so far as the version
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from streamlog.arrow.table_writer import write_table
from streamlog.bucket.places import is_bucket, root_paths, shared_store
from streamlog.bucket.root import BucketRoot
from streamlog.commits.identity import CommitIdentity
from streamlog.errors import CommitMismatchError
from streamlog.exchange.import_source import ImportUnit
from streamlog.exchange.versions import ImportVersion
from streamlog.fs.api import FileSystem
from streamlog.fs.local import LocalFileSystem
from streamlog.records.acks import Acks
from streamlog.root.manager import LogManager
from streamlog.root.read_roots import RootPaths
from streamlog.topic import TopicPartition

__all__ = ["ImportReport", "Importer"]

_COMMIT_BYTES: Final = 64 << 20  # of Arrow, held in memory


@dataclass(slots=True)
class ImportReport:
    """What an import did.

    Attributes:
        units: Files or tables of which rows were imported.
        complete: Those that had been imported before.
        rows: Rows that were imported.
        parts: The first and last offset of each partition, and how many of its rows are new.
        ignored: Columns that were not imported.
    """

    units: int = 0
    complete: int = 0
    rows: int = 0
    parts: dict[TopicPartition, tuple[int, int, int]] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)


class Importer:
    """Imports into one topic.

    Args:
        root: The log root, also in an object store; or roots of a replica set.
        topic: The topic of all rows.
        compression_type: The codec, if the topic's `compression.type` is `producer`.
        acks: See `write_table`.
        commit_bytes: Bytes of Arrow per commit.
        fs: The file system; the machine's own by default.
    """

    def __init__(
        self,
        root: RootPaths,
        topic: str,
        *,
        compression_type: str = "none",
        acks: str | int | Acks = Acks.ALL,
        commit_bytes: int = _COMMIT_BYTES,
        fs: FileSystem | None = None,
    ) -> None:
        self._root, self._topic, self._fs = root, topic, fs or LocalFileSystem()
        self._compression, self._acks, self._commit_bytes = compression_type, acks, commit_bytes
        self._topic_id = ""  # looked up with the versions

    def plan(self, units: Sequence[ImportUnit]) -> list[ImportVersion | None]:
        """Return how far each unit is, None if nothing of it was imported.

        Raises:
            UnknownTopicError: There is no such root or topic.
            CommitMismatchError: A unit has changed since it was begun.
        """
        states = []
        for unit, version in zip(units, self._versions(units), strict=True):
            state = None if version is None else ImportVersion.of(version)
            if state is not None and state.fingerprint != unit.fingerprint:
                raise CommitMismatchError(
                    "what is to be imported has changed since it was imported, as a whole or in"
                    " part",
                    path=unit.name,
                    got=f"fingerprint {unit.fingerprint:#08x}",
                    expected=f"{state.fingerprint:#08x}, of which {state.rows} rows are in"
                    f" {self._topic}",
                    hint="import new rows from a file of their own; of a table, pass the"
                    " --table-version that was begun",
                )
            states.append(state)
        return states

    def run(
        self,
        units: Sequence[ImportUnit],
        *,
        on_progress: Callable[[int], None] = lambda size: None,
    ) -> ImportReport:
        """Import all rows that are not in the topic yet.

        Args:
            units: Files or tables.
            on_progress: Called with numbers of bytes that were imported.

        Raises:
            UnknownTopicError: There is no such root, topic or partition.
            InvalidRequestError: A row that cannot be imported; rows before it may be.
            CommitMismatchError: A unit has changed since it was begun.
            CorruptDataError: A file is damaged; rows before the damage may be imported.
            UnavailableError: A lock or a disk is not available; the next call goes on.
        """
        report = ImportReport()
        for unit, state in zip(units, self.plan(units), strict=True):
            report.ignored += [each for each in unit.ignored if each not in report.ignored]
            if state is not None and state.is_complete:
                report.complete += 1
            else:
                report.units += 1
                self._import(unit, state, report)
            on_progress(unit.size)
        return report

    def _import(self, unit: ImportUnit, state: ImportVersion | None, report: ImportReport) -> None:
        done = 0 if state is None else state.rows
        for rows, is_last in self._chunks(unit, done):
            done += rows.num_rows
            outcome = write_table(
                rows,
                self._root,
                self._topic,
                compression_type=self._compression,
                txn_app_id=self._app(unit),
                txn_version=ImportVersion(done, unit.fingerprint, is_last).number,
                acks=self._acks,
                fs=self._fs,
            )
            report.rows += rows.num_rows
            for partition, first, last in outcome.parts:
                start, _, count = report.parts.get(partition, (first, last, 0))
                report.parts[partition] = (start, last, count + last - first + 1)

    def _chunks(self, unit: ImportUnit, skip: int) -> Iterator[tuple[pa.Table, bool]]:
        """Yield rows for one commit each, and whether they are the last ones."""
        waiting: list[pa.RecordBatch] = []
        size = 0
        for batch in unit.batches():
            left = min(skip, batch.num_rows)
            skip -= left
            batch = batch.slice(left)
            if batch.num_rows == 0:
                continue
            if waiting and size + batch.nbytes > self._commit_bytes:
                yield pa.Table.from_batches(waiting), False
                waiting, size = [], 0
            waiting.append(batch)
            size += batch.nbytes
        if waiting:
            yield pa.Table.from_batches(waiting), True

    # ---- how far ---------------------------------------------------------------------------
    def _versions(self, units: Sequence[ImportUnit]) -> list[int | None]:
        """Return the version of the last commit of each unit."""
        paths = root_paths(self._root, self._fs)
        if is_bucket(paths[0]):
            from streamlog.bucket.manager import BucketManager

            BucketManager(paths[0]).ensure_topic(self._topic)
            root = BucketRoot(shared_store(paths[0]))
            root.refresh()
            self._topic_id = root.state.topics[self._topic].topic_id
            ledgers = [root.state.apps.get(self._identity(each)) for each in units]
            return [each.entries[-1].version if each and each.entries else None for each in ledgers]
        with LogManager.open(paths, fs=self._fs) as manager:
            manager.ensure_topic(self._topic)
            self._topic_id = manager.describe(self._topic).topic_id or ""
            return [manager.commits.last_version(self._identity(each)) for each in units]

    def _identity(self, unit: ImportUnit) -> str:
        return CommitIdentity.of(
            txn_app_id=self._app(unit), query_id=None, topic=self._topic, version=0
        ).app

    def _app(self, unit: ImportUnit) -> str:
        """Return the writer's name: a topic that is created again has nothing of a file."""
        return f"import into {self._topic_id} of {unit.name}"
