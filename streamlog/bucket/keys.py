"""The keys of a log root in an object store.

    .streamlog/journal/<number>                      the entries of the journal, from 1
    .streamlog/snapshots/<number>                    the state of the root after an entry
    .streamlog/latest                                a hint: the last entry that its writer knew
    .streamlog/staging/<time>/<app>/<staged name>    batches of task attempts, by the time in ms
                                                     at which the attempt began
    .streamlog/readers/<name>/<source>.json          the recorded readers
    <topic>-<partition>/<build>/<base offset>.log    segments, and their indexes, with Kafka's
                                                     names, below a name for those built together

Numbers and times have 20 digits, so keys sort as their numbers do.
"""

import re
from typing import Final

from streamlog.commits.identity import app_key
from streamlog.fs.log_root import STATE_DIRECTORY
from streamlog.partition.epochs import LEADER_EPOCH_CHECKPOINT
from streamlog.segment.filenames import FileSuffix
from streamlog.topic import TopicPartition

__all__ = [
    "JOURNAL",
    "LATEST",
    "READERS",
    "SNAPSHOTS",
    "STAGING",
    "entry_key",
    "epochs_key",
    "files_of",
    "number_of",
    "reader_key",
    "segment_directory",
    "snapshot_key",
    "staged_before",
    "staged_key",
    "staged_ms",
]

JOURNAL: Final = f"{STATE_DIRECTORY}/journal/"
SNAPSHOTS: Final = f"{STATE_DIRECTORY}/snapshots/"
LATEST: Final = f"{STATE_DIRECTORY}/latest"
STAGING: Final = f"{STATE_DIRECTORY}/staging/"
READERS: Final = f"{STATE_DIRECTORY}/readers/"

_NUMBER: Final = re.compile(r"[0-9]{20}", re.ASCII)
_STAGED: Final = re.compile(re.escape(STAGING) + r"([0-9]{20})/[^/]+/[^/]+", re.ASCII)
_SEGMENT_SUFFIXES: Final = (
    FileSuffix.LOG,
    FileSuffix.OFFSET_INDEX,
    FileSuffix.TIME_INDEX,
    FileSuffix.TXN_INDEX,
)


def entry_key(number: int) -> str:
    """Return the key of an entry of the journal."""
    return f"{JOURNAL}{number:020d}"


def snapshot_key(number: int) -> str:
    """Return the key of the snapshot after an entry."""
    return f"{SNAPSHOTS}{number:020d}"


def number_of(key: str) -> int | None:
    """Return the number at the end of the key of an entry or a snapshot, None if there is none."""
    name = key.rpartition("/")[2]
    return int(name) if _NUMBER.fullmatch(name) else None


def staged_key(app: str, name: str) -> str:
    """Return the key of a staged object, whose name ends with the time of the attempt."""
    attempt, _, time = name.rpartition("-")
    return f"{STAGING}{time}/{app_key(app)}/{attempt}"


def staged_ms(key: str) -> int | None:
    """Return the time in the key of a staged object, in ms; None if it is no such key."""
    found = _STAGED.fullmatch(key)
    return int(found[1]) if found else None


def staged_before(time_ms: int) -> str:
    """Return a key that all objects staged before a time, and only they, are less than."""
    return f"{STAGING}{time_ms:020d}"


def reader_key(name: str, source: str) -> str:
    """Return the key of a recorded reader, one for each of its sources."""
    return f"{READERS}{name}/{source}.json"


def segment_directory(partition: TopicPartition, build: str) -> str:
    """Return the prefix of the segments of a partition that were built together."""
    return f"{partition}/{build}/"


def files_of(key: str) -> list[str]:
    """Return the keys that go with one that the journal names: a segment has indexes.

    The leader epochs of a build stay in its directory until the directory is empty, see
    `epochs_key`.
    """
    if staged_ms(key) is not None:
        return [key]
    stem = key.removesuffix(FileSuffix.LOG.value)
    return [f"{stem}{suffix.value}" for suffix in _SEGMENT_SUFFIXES]


def epochs_key(key: str) -> str:
    """Return the key of the leader epochs beside a segment."""
    return f"{key.rpartition('/')[0]}/{LEADER_EPOCH_CHECKPOINT}"
