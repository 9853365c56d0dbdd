"""Copying from a directory: a root, or the log.dir of a broker, read without writing to it."""

import contextlib
import os
from collections.abc import Iterator
from typing import Final

import numpy as np

from streamlog.errors import UnknownTopicError
from streamlog.fs.log_root import LogRoot
from streamlog.handover.cluster_image import CLUSTER_METADATA, ClusterImage, read_cluster_image
from streamlog.handover.plan import has_cluster_metadata
from streamlog.partition.partition_metadata import read_topic_id
from streamlog.partition.read import READ_BEYOND, aborted_between
from streamlog.partition.reader import LogReader
from streamlog.partition.segments import OffsetAndTimestamp
from streamlog.partition.topic_config import read_topic_properties
from streamlog.records.record import IsolationLevel
from streamlog.root.roots import check_root, is_our_root
from streamlog.root.topics import directories_by_topic, list_topics, partition_path
from streamlog.segment.filenames import parse_log_file_name
from streamlog.segment.txn_index import AbortedTxn
from streamlog.topic import TopicPartition, parse_partition_directory
from streamlog.transfer.ends import CopyTopic, Piece

__all__ = ["DirectoryPartition", "DirectorySource"]

COPY_BYTES: Final = 4 << 20  # at a time; a read, its checksums and a write stay in the cache


class DirectorySource:
    """A directory to copy from; see `CopySource`.

    Args:
        root: The directory.

    Raises:
        UnknownTopicError: There is no such directory.
    """

    is_rebuilt = False

    def __init__(self, root: LogRoot) -> None:
        check_root(root)
        self._root, self.name = root, root.path

    def topics(self) -> dict[str, CopyTopic]:
        """See `CopySource.topics`; of a broker's topics, settings are known with its metadata."""
        found = directories_by_topic(self._root)
        hidden = parse_partition_directory(CLUSTER_METADATA)
        names = set(list_topics(self._root)) - {hidden.topic if hidden else ""}
        image = self._image()
        return {
            name: CopyTopic(
                name,
                self._topic_id(found[name]),
                tuple(sorted(found[name])),
                self._configs(name, image),
            )
            for name in sorted(names & found.keys())
        }

    def _image(self) -> ClusterImage:
        if is_our_root(self._root) or not has_cluster_metadata(self._root):
            return ClusterImage()
        return read_cluster_image(self._root.fs, f"{self._root.path}/{CLUSTER_METADATA}")

    def _topic_id(self, directories: dict[int, str]) -> str | None:
        found = (read_topic_id(self._root.fs, path) for path in directories.values())
        return next((each for each in found if each is not None), None)

    def _configs(self, topic: str, image: ClusterImage) -> dict[str, str]:
        if topic in image.topics:
            return dict(image.topics[topic].configs)
        return read_topic_properties(self._root, topic)

    def open(self, partition: TopicPartition) -> "DirectoryPartition":
        """See `CopySource.open`."""
        return DirectoryPartition(self._root, partition_path(self._root, partition))

    def close(self) -> None:
        """See `CopySource.close`."""


class DirectoryPartition:
    """A partition's directory, for reading; see `SourcePartition`.

    Args:
        root: The root, for its file system.
        path: The directory.
    """

    has_transactions = True  # finding out would take a scan
    may_overwrite = False

    def __init__(self, root: LogRoot, path: str) -> None:
        self._reader = LogReader.open(path, fs=root.fs)
        self.path = path
        offsets = self._reader.offsets
        self.log_start_offset, self.end_offset = offsets.start, offsets.high_watermark
        self.epochs = tuple((int(a), int(b)) for a, b in self._reader.leader_epochs.entries)

    @property
    def is_empty(self) -> bool:
        """Whether no segment holds a batch."""
        return self._reader.size == 0

    @property
    def stable_offset(self) -> int:
        """See `SourcePartition.stable_offset`."""
        return min(self._reader.last_stable_offset, self.end_offset)

    def pieces(self, start_offset: int, end_offset: int) -> Iterator[Piece]:
        """See `SourcePartition.pieces`."""
        room = min(COPY_BYTES, self._reader.size) + READ_BEYOND
        memory = np.empty(room, np.uint8)
        offset = start_offset
        while offset < end_offset:
            info = self._reader.read(
                offset,
                COPY_BYTES,
                isolation=IsolationLevel.READ_UNCOMMITTED,
                end_offset=end_offset,
                into=memory,
            )
            if len(info.table):
                base = parse_log_file_name(os.path.basename(info.path))
                is_first = info.position == 0
                yield Piece(info.buffer, info.table, info.next_offset, base if is_first else None)
                if not self.may_overwrite:
                    memory = np.empty(room, np.uint8)
            offset = info.next_offset

    def aborted_between(self, start_offset: int, end_offset: int) -> list[AbortedTxn]:
        """See `SourcePartition.aborted_between`."""
        found = aborted_between(self._reader.segments, start_offset, end_offset)
        return found + [
            each
            for each in self._reader.unindexed_aborts
            if each.last_offset >= start_offset and each.first_offset < end_offset
        ]

    def offset_for_timestamp(self, timestamp: int) -> OffsetAndTimestamp | None:
        """See `SourcePartition.offset_for_timestamp`."""
        return self._reader.offset_for_timestamp(timestamp)

    def size_between(self, start_offset: int, end_offset: int) -> int:
        """See `SourcePartition.size_between`."""
        return self._reader.size_between(start_offset, end_offset)

    def close(self) -> None:
        """See `SourcePartition.close`."""
        with contextlib.suppress(UnknownTopicError):  # deleted meanwhile
            self._reader.close()
