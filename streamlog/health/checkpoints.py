"""The files of a log root beside its partitions: checkpoints, `meta.properties`, topic ids."""

import re
from collections.abc import Mapping
from typing import Final

from streamlog.errors import CorruptDataError
from streamlog.fs.api import FileSystem
from streamlog.health.findings import Finding, FindingKind, Report, finding_of
from streamlog.partition.checkpoints import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    read_offsets,
)
from streamlog.partition.partition_metadata import PARTITION_METADATA, read_topic_id
from streamlog.root.directories import Holding, holding_of
from streamlog.root.meta_properties import read_meta_properties
from streamlog.root.roots import CLEAN_SHUTDOWN
from streamlog.topic import PUT_ASIDE, TopicPartition, parse_partition_directory

__all__ = ["RootFiles"]

_PADDED: Final = re.compile(r".+-0[0-9]+", re.ASCII)  # `orders-00`: no partition's number
_CHECKPOINTS: Final = (
    RECOVERY_POINT_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    CLEANER_OFFSET_CHECKPOINT,
)


class RootFiles:
    """The files of one log root, as they were before its partitions are looked at.

    Args:
        fs: Where it lies.
        root: The log root.
        report: Takes what is found.

    Raises:
        StorageError: A file cannot be read.
    """

    def __init__(self, fs: FileSystem, root: str, report: Report) -> None:
        self._fs, self._root, self._report = fs, root, report
        self._rows = {name: self._read(name) for name in _CHECKPOINTS}
        self._is_clean = fs.stat(f"{root}/{CLEAN_SHUTDOWN}") is not None

    def _read(self, name: str) -> Mapping[TopicPartition, int]:
        path = f"{self._root}/{name}"
        try:
            return read_offsets(self._fs, path)
        except CorruptDataError as error:
            self._report(finding_of(error, FindingKind.CHECKPOINT, path))
            return {}

    def log_start_offset(self, partition: TopicPartition) -> int | None:
        """Return where a partition begins, None where nobody knows.

        A root that was not left in order may have been written before the start last moved.
        """
        known = self._rows[LOG_START_OFFSET_CHECKPOINT]
        return known.get(partition, 0) if self._is_clean else None

    def recovery_point(self, partition: TopicPartition) -> int | None:
        """Return up to where a partition is synced, None where no row says so."""
        return self._rows[RECOVERY_POINT_CHECKPOINT].get(partition)

    # ---- what no partition needs -------------------------------------------------------------
    def check_root(self, partitions: Mapping[TopicPartition, str]) -> None:
        """Look at what concerns the root as a whole.

        Args:
            partitions: The directories of all partitions there are.
        """
        try:
            read_meta_properties(self._fs, self._root)
        except CorruptDataError as error:
            self._report(finding_of(error, FindingKind.METADATA, self._root))
        for name, rows in self._rows.items():
            for partition in rows:
                if partition not in partitions:
                    # The rows of a topic that was deleted go with the next writing of the file.
                    what = f"{partition} is not there"
                    is_note = not self._is_clean
                    self._report(
                        self._finding(name, what, None, "no directory", None, is_note=is_note)
                    )
        self._check_topic_ids(partitions)
        self._check_names(partitions)

    def _check_names(self, partitions: Mapping[TopicPartition, str]) -> None:
        """Look for what is not read, though it is called like a partition or was one."""
        for name in self._fs.list(self._root):
            if name.endswith(PUT_ASIDE):
                self._report(
                    Finding(
                        kind=FindingKind.LEFTOVER,
                        path=f"{self._root}/{name}",
                        what="a broker put this partition aside: nobody reads its records",
                        is_note=True,
                    )
                )
            named = parse_partition_directory(name)
            is_twin = named is None and _PADDED.fullmatch(name) is not None
            if not (is_twin or (named is not None and named not in partitions)):
                continue
            found = holding_of(self._fs, f"{self._root}/{name}")
            if found is Holding.NOTHING:
                continue
            if found is Holding.STRANGE:
                self._report(
                    Finding(
                        kind=FindingKind.FOREIGN_FILE,
                        path=f"{self._root}/{name}",
                        what="called like a partition, and holds no log: it is left alone",
                        is_note=True,
                    )
                )
            elif is_twin or found is Holding.NO_DIRECTORY:
                self._report(
                    Finding(
                        kind=FindingKind.FOREIGN_FILE,
                        path=f"{self._root}/{name}",
                        what="called like a partition, and is none: nobody reads it",
                        got=f"{found.value} called {name}",
                        expected="a directory called TOPIC-PARTITION, the number without zeros",
                    )
                )

    def _check_topic_ids(self, partitions: Mapping[TopicPartition, str]) -> None:
        known: dict[str, str] = {}
        for partition, directory in sorted(partitions.items()):
            try:
                topic_id = read_topic_id(self._fs, directory)
            except CorruptDataError:
                continue  # told with the partition
            if topic_id is None:
                continue
            expected = known.setdefault(partition.topic, topic_id)
            if topic_id != expected:
                self._report(
                    Finding(
                        kind=FindingKind.METADATA,
                        path=f"{directory}/{PARTITION_METADATA}",
                        what="partitions of one topic have different topic ids",
                        got=topic_id,
                        expected=expected,
                    )
                )

    # ---- what a partition's log must bear out ------------------------------------------------
    def tell_of(self, partition: TopicPartition, next_offset: int, report: Report) -> None:
        """Compare the rows of a partition with its log.

        The recovery point is compared with the log itself. Rows that lag behind are no finding:
        they are written now and then.

        Args:
            partition: The partition.
            next_offset: Its log end offset.
            report: Takes what is found.
        """
        for name in (
            LOG_START_OFFSET_CHECKPOINT,
            HIGH_WATERMARK_CHECKPOINT,
            CLEANER_OFFSET_CHECKPOINT,
        ):
            offset = self._rows[name].get(partition)
            if offset is not None and offset > next_offset:
                what = f"{partition} ends before that offset"
                expected = f"at most {next_offset}"
                report(self._finding(name, what, offset, offset, expected, is_note=False))

    def _finding(
        self,
        name: str,
        what: str,
        offset: int | None,
        got: object,
        expected: object,
        *,
        is_note: bool,
    ) -> Finding:
        return Finding(
            kind=FindingKind.CHECKPOINT,
            path=f"{self._root}/{name}",
            what=what,
            offset=offset,
            got=got,
            expected=expected,
            is_note=is_note,
        )
