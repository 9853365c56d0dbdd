"""What a commit is to the history of its app: new, a replay, or a mistake. A table decides.

The first row whose columns fit is the verdict; `_` fits anything.
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
    """What to do with a known version that is made from something else (`onReplayMismatch`)."""

    FAIL = "fail"
    SKIP = "skip"
    APPEND = "append"

    @classmethod
    def parse(cls, choice: "str | OnMismatch") -> "OnMismatch":
        """Return the choice of that name.

        Raises:
            InvalidOptionError: There is no such choice.
        """
        try:
            return cls(choice)
        except ValueError:
            raise InvalidOptionError(
                "not a value of onReplayMismatch",
                got=repr(choice),
                expected=", ".join(value.value for value in cls),
            ) from None


class VersionPlace(Enum):
    """Where a version lies in the history of its app."""

    FIRST = "the app never committed"
    NEXT = "last + 1"
    LATER = "above last + 1"
    SAME = "known, with the same fingerprint"
    OTHER = "known, with other fingerprints only"
    ANOTHER_QUERY = "known, committed by other queries only"
    FORGOTTEN = "not above the last, and not known"
    LOST = "above last + 1, and the checkpoint remembers a version that the log does not know"


class Verdict(Enum):
    """What is to be done."""

    COMMIT = "commit"
    REPLAY = "the old commit stands"
    SKIP = "the old commit stands, though it was made from something else"
    APPEND = "commit as another revision"
    REFUSE = "stop"


class ReplayCase(NamedTuple):
    """One row of the table; None fits anything."""

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
    """Return what is to be done with a commit, and the index in `known` of what stands for it.

    Args:
        identity: Whose commit it is.
        fingerprint: What it is made from.
        known: What the version was made from when it was committed, a fingerprint for each
            revision that is remembered, oldest first.
        last_version: The highest version committed, -1 for none.
        note: What the query's checkpoint remembers of the app; None where there is no checkpoint.
        rule: Which versions may follow the last one.
        on_mismatch: What to do with a known version made from something else.

    Raises:
        CommitMismatchError: The commit must not be made.
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
    """Return where a version lies.

    Args:
        version: The version.
        last_version: The highest one committed, -1 for none.
        known: How the commit is like each of its revisions that are remembered.
        noted: The highest version that the query's checkpoint remembers, None for none.
    """
    if noted is not None and last_version < noted and last_version + 1 < version:
        return VersionPlace.LOST  # a batch between the last one and this one may be missing
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
    """Return what is to be done with a commit."""
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
    """Return the error for a commit that must not be made.

    Args:
        identity: Whose commit it is.
        place: Why it must not: LATER, OTHER, ANOTHER_QUERY or FORGOTTEN.
        last_version: The highest version committed.
        fingerprint: What the commit was made from.
        known: What the version was made from when it was committed, by revision.
    """
    if place is VersionPlace.OTHER:
        return CommitMismatchError(
            f"{identity} is committed already, made from other rows",
            got=str(fingerprint),
            expected=", or ".join(str(old) for old in known),
            hint="the checkpoint was lost or put back: restore the one that belongs to this log, "
            "or choose with onReplayMismatch=skip (keep the old rows) or append (keep both)",
        )
    if place is VersionPlace.ANOTHER_QUERY:
        return CommitMismatchError(
            f"{identity} is committed already, by another query",
            got=str(fingerprint),
            expected=", or ".join(str(old) for old in known),
            hint="a query with a new checkpoint counts from 0 again: give it another txnAppId, or "
            "restore the checkpoint of the query that wrote before; onReplayMismatch=append "
            "writes the rows of both",
        )
    if place is VersionPlace.LATER:
        return CommitMismatchError(
            f"{identity} does not follow the last one",
            got=f"version {identity.version}",
            expected=f"{last_version + 1}, or {last_version} again",
            hint="batches between them never reached this log: restore the checkpoint that "
            "belongs to it, or start a new query with a new checkpoint (or another txnAppId)",
        )
    return CommitMismatchError(
        f"{identity} is older than what is remembered",
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
        f"batches that {identity.app} committed are missing from this log: it was put back from an "
        f"older copy, or made new, while the checkpoint went on",
        path=note.path,
        got=f"{identity}, and a log that knows {knows}",
        expected=f"a log that knows version {note.version}, as the checkpoint does",
        hint="put back a log and a checkpoint that belong together, or start a new query with a "
        "new checkpoint; to go on and leave the missing batches out, delete the file named above",
    )
