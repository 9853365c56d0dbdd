"""Which content a file has by its name: segments, indexes, snapshots, checkpoints, metadata."""

import os
import re
from enum import Enum
from typing import Final, NamedTuple

from streamlog.fs.log_root import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
)
from streamlog.partition.epochs import LEADER_EPOCH_CHECKPOINT
from streamlog.partition.partition_metadata import PARTITION_METADATA
from streamlog.segment.filenames import FileSuffix, parse_segment_file_name

__all__ = ["Content", "KnownFile", "identify"]


class Content(Enum):
    """The content of a file."""

    LOG = "record batches"
    OFFSET_INDEX = "an offset index"
    TIME_INDEX = "a time index"
    TXN_INDEX = "a transaction index"
    PRODUCER_SNAPSHOT = "a producer snapshot"
    LEADER_EPOCHS = "leader epochs"
    OFFSETS = "an offset for each partition"
    PARTITION_METADATA = "a topic id"
    META_PROPERTIES = "cluster and node"


class KnownFile(NamedTuple):
    """The facts in a file's name.

    Attributes:
        kind: The file's content.
        base_offset: The offset in the name, None without one.
        epoch: The leader epoch in the name of a snapshot of KRaft's metadata; else None.
    """

    kind: Content
    base_offset: int | None = None
    epoch: int | None = None


_OF_A_SEGMENT: Final = {
    FileSuffix.LOG: Content.LOG,
    FileSuffix.OFFSET_INDEX: Content.OFFSET_INDEX,
    FileSuffix.TIME_INDEX: Content.TIME_INDEX,
    FileSuffix.TXN_INDEX: Content.TXN_INDEX,
    FileSuffix.PRODUCER_SNAPSHOT: Content.PRODUCER_SNAPSHOT,
}
_BY_NAME: Final = {
    LEADER_EPOCH_CHECKPOINT: Content.LEADER_EPOCHS,
    RECOVERY_POINT_CHECKPOINT: Content.OFFSETS,
    LOG_START_OFFSET_CHECKPOINT: Content.OFFSETS,
    HIGH_WATERMARK_CHECKPOINT: Content.OFFSETS,
    CLEANER_OFFSET_CHECKPOINT: Content.OFFSETS,
    PARTITION_METADATA: Content.PARTITION_METADATA,
    META_PROPERTIES: Content.META_PROPERTIES,
}
_TORN: Final = re.compile(r"(?P<segment>.+)\.torn-[0-9]{1,3}", re.ASCII)
_METADATA_SNAPSHOT: Final = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint", re.ASCII)
_BOOTSTRAP: Final = "bootstrap.checkpoint"  # BootstrapDirectory.BINARY_BOOTSTRAP_FILENAME


def identify(path: str) -> KnownFile | None:
    """Return the content that a file must have by its name; None for an unknown name."""
    name = os.path.basename(path)
    if name in _BY_NAME:
        return KnownFile(_BY_NAME[name])
    torn = _TORN.fullmatch(name)
    parsed = parse_segment_file_name(name if torn is None else torn["segment"])
    if parsed is not None:
        base_offset = None if torn is not None else parsed.base_offset
        return KnownFile(_OF_A_SEGMENT[parsed.kind], base_offset)
    snapshot = _METADATA_SNAPSHOT.fullmatch(name)
    if snapshot is not None:
        return KnownFile(Content.LOG, int(snapshot[1]), int(snapshot[2]))
    return KnownFile(Content.LOG) if name == _BOOTSTRAP or name.endswith(".log") else None
