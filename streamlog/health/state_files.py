"""Checks the files below `.streamlog`: settings, decisions, staged rows, ledgers, readers, locks.

Running queries create and remove files during the check. So names are listed before the files that
they are compared with are read, the reverse of the order of writers, and deleted files are skipped.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from streamlog.binary.sealed import MAX_SEALED_SIZE, mended, unseal
from streamlog.commits.decisions import DecidedPart, Decision, parse_decision
from streamlog.commits.extents import ExtentReader
from streamlog.commits.history import Ledger, Ledgers
from streamlog.commits.identity import app_key
from streamlog.commits.pending import PendingDecisions, decision_key, decision_number
from streamlog.commits.staging import StagingArea
from streamlog.config.server_config import ServerConfig
from streamlog.errors import (
    CorruptDataError,
    FileMissingError,
    InvalidConfigError,
    StorageError,
    StreamLogError,
)
from streamlog.fs.api import FileKind, OpenMode
from streamlog.fs.files import read_file
from streamlog.fs.log_root import LogRoot
from streamlog.fs.names import is_temporary
from streamlog.health.findings import Finding, FindingKind, Report, finding_of
from streamlog.partition import locks
from streamlog.partition.meta_properties import read_meta_properties
from streamlog.partition.topic_config import read_server_config, read_topic_properties
from streamlog.replication.register_file import RegisterFile
from streamlog.replication.root_set import read_root_list
from streamlog.root.deeds import unreadable_lines
from streamlog.root.group_configs import read_group_configs
from streamlog.root.readers import reader_names, recorded_reader
from streamlog.root.topics import list_topics, partition_directories
from streamlog.topic import TopicPartition

__all__ = ["StateFiles"]

_LOCK_HEAD: Final = 256  # bytes of the line about the holder, before the state


class StateFiles:
    """Checks `.streamlog` of a root that streamlog made, read-only.

    Args:
        root: The log root.
        report: Called with each finding.
        is_deep: Whether to read staged rows as well.
        durable: Recovery points by partition: staged rows below them are no longer needed.
    """

    def __init__(
        self,
        root: LogRoot,
        report: Report,
        *,
        is_deep: bool,
        durable: Mapping[TopicPartition, int],
    ) -> None:
        self._fs, self._root, self._report = root.fs, root, report
        self._is_deep, self._durable = is_deep, durable
        self._unreadable_ledgers: set[str] = set()

    def run(self) -> None:
        """Check all files.

        Raises:
            StorageError: A directory cannot be read.
        """
        self._check_settings()
        self._check_commits()
        self._check_readers()
        self._check_book()
        self._check_locks()
        self._check_replication()

    # ---- settings ----------------------------------------------------------------------------
    def _check_settings(self) -> None:
        server = ServerConfig()
        try:
            server = read_server_config(self._root)
        except StreamLogError as error:
            self._add(error, FindingKind.SETTINGS, self._root.server_properties)
        self._check_group_configs()
        for topic in list_topics(self._root):
            path = self._root.topic_properties(topic)
            try:
                own = read_topic_properties(self._root, topic)
                server.log_config(own, path=path)
            except (InvalidConfigError, CorruptDataError, StorageError) as error:
                self._add(error, FindingKind.SETTINGS, path)
            if (
                not partition_directories(self._root, topic)
                and self._is_there(path)
                and not self._is_elsewhere(topic)
            ):
                self._report(
                    Finding(
                        kind=FindingKind.METADATA,
                        path=path,
                        what=f"topic {topic} has no partition directory",
                        expected=f"{self._root.path}/{topic}-0",
                    )
                )

    def _check_group_configs(self) -> None:
        path = self._root.group_configs
        if self._sealed(path, FindingKind.SETTINGS, "the settings of groups") is None:
            return
        try:
            read_group_configs(self._root)
        except CorruptDataError as error:
            self._add(error, FindingKind.SETTINGS, path)

    def _is_elsewhere(self, topic: str) -> bool:
        """Return whether other log roots hold all replicas of a topic."""
        try:
            meta = read_meta_properties(self._fs, self._root.path)
            value = RegisterFile(self._root, f"{topic}-0").read()
        except (CorruptDataError, StorageError):
            return False
        state = None if value is None else value.state
        return state is not None and meta is not None and meta.node_id not in state.replicas

    def _is_there(self, path: str) -> bool:
        return self._fs.stat(path) is not None

    # ---- commits -----------------------------------------------------------------------------
    def _check_commits(self) -> None:
        pending = PendingDecisions(self._root)
        names = pending.names()
        decisions = {name: self._decision(f"{pending.path}/{name}") for name in names}
        ledgers = dict(self._ledgers())
        retired = {key: ledger.standing.number for key, ledger in ledgers.items()}
        for name, decision in decisions.items():
            if decision is not None and decision.number > retired.get(decision_key(name), 0):
                self._check_staged(decision)
        self._check_gaps(pending.path, names, retired)

    def _decision(self, path: str) -> Decision | None:
        content = self._sealed(path, FindingKind.DECISION, "a decision")
        if content is None:
            return None
        try:
            return parse_decision(content, path)
        except CorruptDataError as error:
            self._add(error, FindingKind.DECISION, path)
            return None

    def _ledgers(self) -> Iterator[tuple[str, Ledger]]:
        ledgers = Ledgers(self._root)
        for name in self._names(ledgers.path):
            path = f"{ledgers.path}/{name}"
            content = self._sealed(path, FindingKind.LEDGER, "a ledger")
            if content is None:
                self._unreadable_ledgers.add(name)
                continue
            try:
                app = unseal("ledger", content, path).text("app")
                if app_key(app) != name:
                    continue  # the temporary file of an earlier version
                found = ledgers.load(app)
            except CorruptDataError as error:
                self._add(error, FindingKind.LEDGER, path)
                self._unreadable_ledgers.add(name)
                continue
            if found is not None:
                yield name, found

    def _sealed(self, path: str, kind: FindingKind, what: str) -> bytes | None:
        try:
            content = read_file(self._fs, path, max_size=MAX_SEALED_SIZE)
        except FileMissingError:
            return None  # retired since the listing
        except (CorruptDataError, StorageError) as error:
            self._add(error, kind, path)
            return None
        if mended(content) is not None:
            self._report(
                Finding(
                    kind=kind,
                    path=path,
                    what=f"one of the two copies of {what} is damaged; the other is intact",
                    is_repairable=True,
                )
            )
        return content

    def _check_staged(self, decision: Decision) -> None:
        """Check the staged rows of a decision that may still have to be applied."""
        area = StagingArea(self._root)
        reader = ExtentReader(area, decision.identity.app, decision.files)
        for part in decision.parts:
            if part.last_offset < self._durable.get(part.topic_partition, 0):
                continue
            try:
                self._check_part(decision, part, reader)
            except (CorruptDataError, StorageError) as error:
                path = f"{PendingDecisions(self._root).path}/{decision.name}"
                if self._is_there(path):  # else it was retired, and its staged files removed
                    self._report(_of_staged(error, decision, part))

    def _check_part(self, decision: Decision, part: DecidedPart, reader: ExtentReader) -> None:
        for extent in part.extents:
            if self._is_deep:
                reader.read(extent)
                continue
            wanted = decision.files[extent.file].size
            found = self._fs.stat(reader.path(extent))
            if found is None or found.kind is not FileKind.FILE or found.size != wanted:
                raise CorruptDataError(
                    "staged file is missing or has the wrong size",
                    path=reader.path(extent),
                    got="no file" if found is None else f"{found.size} bytes",
                    expected=f"{wanted} bytes",
                )

    def _check_gaps(self, path: str, names: list[str], retired: Mapping[str, int]) -> None:
        expected = {key: number + 1 for key, number in retired.items()}
        for name in names:
            key, number = decision_key(name), decision_number(name)
            wanted = expected.get(key, number if key in self._unreadable_ledgers else 1)
            if number < wanted:
                continue  # retired
            if number > wanted and self._is_there(f"{path}/{name}"):
                self._report(
                    Finding(
                        kind=FindingKind.DECISION,
                        path=f"{path}/{name}",
                        what="the decision before this one, or the app's ledger, is missing",
                        got=f"decision {number}",
                        expected=f"decision {wanted}",
                    )
                )
            expected[key] = number + 1

    # ---- readers, the book, locks ------------------------------------------------------------
    def _check_readers(self) -> None:
        for name in reader_names(self._root):
            try:
                recorded_reader(self._root, name)
            except FileMissingError:
                continue  # removed since the listing
            except (CorruptDataError, StorageError) as error:
                self._add(error, FindingKind.READER, self._root.readers)

    def _check_book(self) -> None:
        bad = unreadable_lines(self._root)
        if bad:
            self._report(
                Finding(
                    kind=FindingKind.BOOK,
                    path=self._root.maintenance_book,
                    what="maintenance log has malformed lines",
                    count=bad,
                )
            )

    def _check_locks(self) -> None:
        """Report damaged lock states; the next writer reads the files instead."""
        directory = self._root.locks
        for name in self._names(directory):
            path = f"{directory}/{name}"
            try:
                with self._fs.open(path, OpenMode.READ) as file:
                    state = file.pread(2 * _LOCK_HEAD, _LOCK_HEAD)
                    if state and locks.decode_state(state) is None:
                        # Writing a state is not atomic: read again what was half written.
                        state = file.pread(2 * _LOCK_HEAD, _LOCK_HEAD)
            except StorageError:
                continue
            if state and locks.decode_state(state) is None:
                self._report(
                    Finding(
                        kind=FindingKind.LOCK_STATE,
                        path=path,
                        what="the last writer's state is damaged: the next writer reads the log",
                        is_note=True,
                    )
                )

    def _check_replication(self) -> None:
        """Report damaged registers, which other roots replace, and a damaged list of roots."""
        try:
            read_root_list(self._root)
        except (CorruptDataError, StorageError) as error:
            self._add(error, FindingKind.METADATA, self._root.replica_roots)
        for name in self._names(self._root.replication):
            file = RegisterFile(self._root, name)
            found = self._fs.stat(file.path)
            if found is None or found.kind is not FileKind.FILE:
                continue
            try:
                file.acceptor()
            except (CorruptDataError, StorageError) as error:
                self._report(
                    replace(
                        finding_of(error, FindingKind.REGISTER_BEHIND, file.path),
                        what=f"{error.what}: the next writer takes it from the other log roots",
                    )
                )

    def _names(self, directory: str) -> list[str]:
        try:
            return [name for name in self._fs.list(directory) if not is_temporary(name)]
        except FileMissingError:
            return []

    def _add(self, error: StreamLogError, kind: FindingKind, path: str) -> None:
        self._report(finding_of(error, kind, path))


def _of_staged(error: StreamLogError, decision: Decision, part: DecidedPart) -> Finding:
    return Finding(
        kind=FindingKind.STAGED,
        path=error.path or decision.name,
        what=f"staged rows of {decision.identity} for {part.topic_partition}: {error.what}",
        position=error.position,
        offset=part.base_offset,
        last_offset=part.last_offset,
        got=error.got,
        expected=error.expected,
    )
