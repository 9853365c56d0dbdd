"""The keys of a log root in an object store.

    .streamlog/journal/<number>                      the entries of the journal, from 1
    .streamlog/snapshots/<number>                    the state of the root after an entry
    .streamlog/latest                                a hint: the last entry that its writer knew
    .streamlog/staging/<app>/<staged name>           batches of task attempts
    <topic>-<partition>/<build>/<base offset>.log    segments, and their indexes, with Kafka's
                                                     names, below a name for those built together

Numbers have 20 digits, so keys sort as their numbers do.
"""

from typing import Final

from streamlog.commits.identity import app_key
from streamlog.fs.log_root import STATE_DIRECTORY
from streamlog.topic import TopicPartition

__all__ = [
    "JOURNAL",
    "LATEST",
    "SNAPSHOTS",
    "STAGING",
    "entry_key",
    "segment_directory",
    "snapshot_key",
    "staged_key",
    "staging_of",
]

JOURNAL: Final = f"{STATE_DIRECTORY}/journal/"
SNAPSHOTS: Final = f"{STATE_DIRECTORY}/snapshots/"
LATEST: Final = f"{STATE_DIRECTORY}/latest"
STAGING: Final = f"{STATE_DIRECTORY}/staging/"


def entry_key(number: int) -> str:
    """Return the key of an entry of the journal."""
    return f"{JOURNAL}{number:020d}"


def snapshot_key(number: int) -> str:
    """Return the key of the snapshot after an entry."""
    return f"{SNAPSHOTS}{number:020d}"


def staging_of(app: str) -> str:
    """Return the prefix of an app's staged objects."""
    return f"{STAGING}{app_key(app)}/"


def staged_key(app: str, name: str) -> str:
    """Return the key of a staged object."""
    return f"{staging_of(app)}{name}"


def segment_directory(partition: TopicPartition, build: str) -> str:
    """Return the prefix of the segments of a partition that were built together."""
    return f"{partition}/{build}/"
