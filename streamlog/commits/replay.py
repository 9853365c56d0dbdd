"""Judges a commit by its app's history: new, a replay, or a mismatch. A table decides.

The first matching row gives the verdict; `_` matches anything.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple

from streamlog.commits.fingerprint import Fingerprint, Likeness
from streamlog.commits.history import KEPT_FINGERPRINTS
from streamlog.commits.identity import CommitIdentity
from streamlog.errors import CommitMismatchError, InvalidOptionError
from streamlog.query.checkpoint_note import CheckpointNote

__all__ = [
    "CASES",
    "OnMismatch",
    "VersionPlace",
    "ReplayRule",
    "Verdict",
    "judge",
    "judge_commit",
    "refuse",
]


class ReplayRule(Enum):
    """Which versions may follow the last one."""

    NEXT = "last + 1 only"  # writeStream: Spark numbers its batches without gaps
    GREATER = "any greater one"  # foreachBatch and batch write: the numbers are the user's


class OnMismatch(Enum):
    """What to do with a known version that has another fingerprint (`onReplayMismatch`)."""

    FAIL = "fail"
    SKIP = "skip"
    APPEND = "append"

    @classmethod
    def parse(cls, choice: "str | OnMismatch") -> "OnMismatch":
        """Return the option's value by its name.

        Raises:
            InvalidOptionError: There is no such value.
        """
        try:
            return cls(choice)
        except ValueError:
            raise InvalidOptionError(
                "invalid value for onReplayMismatch",
                got=repr(choice),
                expected=", ".join(value.value for value in cls),
            ) from None


class VersionPlace(Enum):
    """Position of a version in its app's history."""

    FIRST = "the app has no commits"
    NEXT = "last + 1"
    LATER = "above last + 1"
    SAME = "known, with the same fingerprint"
    OTHER = "known, with other fingerprints only"
    ANOTHER_QUERY = "known, committed by other queries only"
    FORGOTTEN = "not above the last, and unknown"
    LOST = "above last + 1, and the checkpoint has noted a version that the log lacks"


class Verdict(Enum):
    """What to do with a commit."""

    COMMIT = "commit"
    REPLAY = "kept the earlier commit"
    SKIP = "kept the earlier commit with another fingerprint"
    APPEND = "commit as another revision"
    REFUSE = "stop"


class ReplayCase(NamedTuple):
    """One row of the table; None matches anything."""

    place: VersionPlace
    rule: ReplayRule | None
    on_mismatch: OnMismatch | None
    verdict: Verdict


_: Final = None
# fmt: off
CASES: Final = (
    ReplayCase(VersionPlace.FIRST,          _,                  _,                 Verdict.COMMIT),
    ReplayCase(VersionPlace.NEXT,           _,                  _,                 Verdict.COMMIT),
    ReplayCase(VersionPlace.LATER,          ReplayRule.GREATER, _,                 Verdict.COMMIT),
    ReplayCase(VersionPlace.LATER,          ReplayRule.NEXT,    _,                 Verdict.REFUSE),
    ReplayCase(VersionPlace.SAME,           _,                  _,                 Verdict.REPLAY),
    ReplayCase(VersionPlace.OTHER,          _,                  OnMismatch.FAIL,   Verdict.REFUSE),
    ReplayCase(VersionPlace.OTHER,          _,                  OnMismatch.SKIP,   Verdict.SKIP),
    ReplayCase(VersionPlace.OTHER,          _,                  OnMismatch.APPEND, Verdict.APPEND),
    ReplayCase(VersionPlace.ANOTHER_QUERY,  _,                  OnMismatch.FAIL,   Verdict.REFUSE),
    ReplayCase(VersionPlace.ANOTHER_QUERY,  _,                  OnMismatch.SKIP,   Verdict.REFUSE),
    ReplayCase(VersionPlace.ANOTHER_QUERY,  _,                  OnMismatch.APPEND, Verdict.APPEND),
    ReplayCase(VersionPlace.FORGOTTEN,      _,                  _,                 Verdict.REFUSE),
    ReplayCase(VersionPlace.LOST,           _,                  _,                 Verdict.REFUSE),
)
# fmt: on


def judge_commit(
    identity: CommitIdentity,
    fingerprint: Fingerprint,
    known: Sequence[Fingerprint],
    *,
    last_version: int,
    note: CheckpointNote | None = None,
    rule: ReplayRule,
    on_mismatch: OnMismatch,
) -> tuple[Verdict, int]:
    """Return the verdict on a commit, and the index in `known` of the revision it refers to.

    Args:
        identity: The commit's identity.
        fingerprint: The commit's fingerprint.
        known: The fingerprints of the version's known revisions, oldest first.
        last_version: The highest version committed, -1 if none.
        note: The checkpoint's note of the app's last version; None without a checkpoint.
        rule: Which versions may follow the last one.
        on_mismatch: What to do with a known version that has another fingerprint.

    Raises:
        CommitMismatchError: The commit is refused.
    """
    alike = [old.likeness(fingerprint) for old in known]
    noted = None if note is None else note.version
    place = place_of(identity.version, last_version=last_version, known=alike, noted=noted)
    verdict = judge(place, rule, on_mismatch)
    if place is VersionPlace.LOST and note is not None:
        raise _refuse_lost(identity, note, last_version)
    if verdict is Verdict.REFUSE:
        raise refuse(
            identity, place, last_version=last_version, fingerprint=fingerprint, known=known
        )
    if verdict is Verdict.REPLAY:
        return verdict, alike.index(Likeness.SAME)
    if verdict is Verdict.SKIP:
        return verdict, len(known) - 1
    return verdict, len(known)


def place_of(
    version: int, *, last_version: int, known: Sequence[Likeness], noted: int | None = None
) -> VersionPlace:
    """Return the position of a version in its app's history.

    Args:
        version: The version.
        last_version: The highest version committed, -1 if none.
        known: How the commit compares to each known revision of the version.
        noted: The highest version that the query's checkpoint has noted, None if none.
    """
    if noted is not None and last_version < noted and last_version + 1 < version:
        return VersionPlace.LOST  # a batch between the last version and this one may be missing
    if last_version < 0:
        return VersionPlace.FIRST
    if Likeness.SAME in known:
        return VersionPlace.SAME
    if known:
        return VersionPlace.OTHER if Likeness.OTHER in known else VersionPlace.ANOTHER_QUERY
    if version <= last_version:
        return VersionPlace.FORGOTTEN
    return VersionPlace.NEXT if version == last_version + 1 else VersionPlace.LATER


def judge(place: VersionPlace, rule: ReplayRule, on_mismatch: OnMismatch) -> Verdict:
    """Return the verdict on a commit."""
    for case in CASES:
        if (
            case.place is place
            and case.rule in (None, rule)
            and case.on_mismatch in (None, on_mismatch)
        ):
            return case.verdict
    raise AssertionError(f"no case for {place}, {rule}, {on_mismatch}")


def refuse(
    identity: CommitIdentity,
    place: VersionPlace,
    *,
    last_version: int,
    fingerprint: Fingerprint,
    known: Sequence[Fingerprint],
) -> CommitMismatchError:
    """Return the error for a refused commit.

    Args:
        identity: The commit's identity.
        place: The reason: LATER, OTHER, ANOTHER_QUERY or FORGOTTEN.
        last_version: The highest version committed.
        fingerprint: The commit's fingerprint.
        known: The fingerprints of the version's known revisions.
    """
    if place is VersionPlace.OTHER:
        return CommitMismatchError(
            f"{identity} is already committed with other rows",
            got=str(fingerprint),
            expected=", or ".join(str(old) for old in known),
            hint="the checkpoint was lost or restored: restore the one that belongs to this log, "
            "or set onReplayMismatch=skip (keep the old rows) or append (keep both)",
        )
    if place is VersionPlace.ANOTHER_QUERY:
        return CommitMismatchError(
            f"{identity} is already committed by another query",
            got=str(fingerprint),
            expected=", or ".join(str(old) for old in known),
            hint="a query with a new checkpoint counts from 0 again: give it another txnAppId, or "
            "restore the checkpoint of the earlier query; onReplayMismatch=append writes the rows "
            "of both",
        )
    if place is VersionPlace.LATER:
        return CommitMismatchError(
            f"{identity} does not follow the last committed version",
            got=f"version {identity.version}",
            expected=f"{last_version + 1}, or {last_version} again",
            hint="the batches in between never reached this log: restore the checkpoint that "
            "belongs to it, or start a new query with a new checkpoint (or another txnAppId)",
        )
    return CommitMismatchError(
        f"{identity} is older than the versions kept for comparison",
        got=f"version {identity.version}",
        expected=f"{last_version + 1}, or one of the last {KEPT_FINGERPRINTS} again",
        hint="restore the checkpoint that belongs to this log, or start a new query with a new "
        "checkpoint (or another txnAppId)",
    )


def _refuse_lost(
    identity: CommitIdentity, note: CheckpointNote, last_version: int
) -> CommitMismatchError:
    knows = f"version {last_version}" if last_version >= 0 else "no version"
    return CommitMismatchError(
        f"batches that {identity.app} committed are missing from this log: it was restored from an "
        f"older copy, or recreated, and the checkpoint was not",
        path=note.path,
        got=f"{identity}, and a log that contains {knows}",
        expected=f"a log that contains version {note.version}, as the checkpoint notes",
        hint="restore a log and a checkpoint that belong together, or start a new query with a "
        "new checkpoint; to continue without the missing batches, delete the file named above",
    )
