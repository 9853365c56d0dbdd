"""What a decision that cannot be read may name, by what else is known of its app.

A decision is written twice in one file (`sealed`), so this is asked only where both copies are
damaged. Then the app's own past tells which topics it writes: the standing in its other decisions
and in its ledger. A query writes the same topics in every batch, so other topics' partitions go on.
Where an app has no past, nothing limits what its first decision names, and every partition stops.

An app that chooses topics by its rows may have named a topic for the first time in the very
decision that is lost. That topic's writers are not stopped; but the app is, `verify` and `doctor`
name the file, and a log line is written each time that a partition passes it over.
"""

from collections.abc import Iterable

from streamlog.commits.decisions import Decision
from streamlog.commits.sealed import MAX_SEALED_SIZE, unseal
from streamlog.commits.standing import Standing, parse_standing
from streamlog.errors import CorruptCheckpointError, FileMissingError
from streamlog.fs.api import FileSystem
from streamlog.fs.files import read_file
from streamlog.fs.log_root import LogRoot

__all__ = ["topics_of_app"]


def topics_of_app(
    fs: FileSystem, root: str, key: str, decisions: Iterable[Decision]
) -> frozenset[str]:
    """Return the topics that an app is known to write; empty where nothing is known.

    Args:
        fs: Where the root is.
        root: The log root.
        key: The app's key (`streamlog.commits.identity.app_key`).
        decisions: Those of its decisions that can be read.

    Raises:
        StorageError: The ledger cannot be read because the disk refuses.
    """
    standings = [decision.standing for decision in decisions]
    ledger = _standing_in_ledger(fs, LogRoot.at(root, fs=fs).ledger(key))
    if ledger is not None:
        standings.append(ledger)
    return frozenset(partition.topic for standing in standings for partition in standing.partitions)


def _standing_in_ledger(fs: FileSystem, path: str) -> Standing | None:
    try:
        content = read_file(fs, path, max_size=MAX_SEALED_SIZE)
        return parse_standing(unseal("ledger", content, path).nested("standing"))
    except (FileMissingError, CorruptCheckpointError):
        return None
