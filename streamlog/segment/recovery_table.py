"""Decision table of recovery: what to do at a place where the log file is not as it should be.

Bad bytes are either a *torn tail*, the remains of an append that was never acknowledged, or
*damage* to acknowledged records. A torn tail is truncated and kept aside. Damage is refused,
because truncating it would turn damage into loss. If the bytes that belong at a bad place are also
stored elsewhere, they are written again. The decision follows from ten facts (`CASES`); the tests
walk all their combinations.

The *mark* is the recovery point: every record below it was synced. It may lag behind, so a bad
batch above it is a torn tail only if nothing sound follows: neither a later segment nor, in the
rest of this one, a single whole batch with the right checksum and offsets that may follow.

Kafka truncates at the first bad batch, wherever it is, and deletes all later segments. It does not
check offsets (unless an index entry is due), leader epochs and magic, which the checksum does not
cover; here they are facts like the others. Source: LogSegment.recover.
"""

from enum import Enum
from typing import Final, NamedTuple

__all__ = ["CASES", "Case", "Facts", "RecoveryVerdict", "decide"]


class RecoveryVerdict(Enum):
    """What to do at a place in the segment."""

    DONE = "the end: nothing to do"
    KEEP = "keep the batch and continue"
    CUT = "truncate here, and keep the truncated bytes aside"
    MEND = "write the batches that belong here, and check again"
    REFUSE = "raise an error and change nothing"


class Facts(NamedTuple):
    """Facts about a place. Facts that do not apply are False.

    Attributes:
        is_end: The file ends here.
        is_whole: There are as many bytes as the length field claims.
        is_unharmed: Their checksum is right.
        is_readable: Their format is known: magic 0, 1 or 2.
        follows: Their offsets follow the last batch and fit into the segment.
        keeps_epoch: Their leader epoch is none, or not below the last one.
        is_repeated: An earlier batch has the same offsets, or they lie below the segment: this
            batch is a copy.
        is_below_mark: Synced records should be here.
        is_followed: Something sound comes later.
        is_known: The batches that belong here, before something sound, are stored elsewhere.
    """

    is_end: bool = False
    is_whole: bool = False
    is_unharmed: bool = False
    is_readable: bool = False
    follows: bool = False
    keeps_epoch: bool = False
    is_repeated: bool = False
    is_below_mark: bool = False
    is_followed: bool = False
    is_known: bool = False


class Case(NamedTuple):
    """A row of the table: facts in the order of `Facts`, None if one does not matter."""

    name: str
    facts: tuple[bool | None, ...]
    verdict: RecoveryVerdict
    reason: str


X, Y, N = None, True, False  # does not matter, yes, no
_DONE, _KEEP, _CUT, _REFUSE = (
    RecoveryVerdict.DONE,
    RecoveryVerdict.KEEP,
    RecoveryVerdict.CUT,
    RecoveryVerdict.REFUSE,
)
_MEND = RecoveryVerdict.MEND
# fmt: off
CASES: Final = (
    #      end, whole, crc, magic, order, epoch, copy, below the mark, more after, known
    Case("@A", (Y, X, X, X, X, X, X, N, X, X), _DONE,   "the end of the segment"),
    Case("@B", (Y, X, X, X, X, X, X, Y, Y, X), _DONE,   "the next segment continues"),
    Case("@C", (Y, X, X, X, X, X, X, Y, N, X), _REFUSE, "synced records are missing"),
    Case("@D", (N, Y, Y, Y, Y, Y, X, X, X, X), _KEEP,   "a sound batch"),
    Case("@E", (N, Y, Y, Y, Y, N, X, X, X, X), _REFUSE, "the leader epoch goes back"),
    Case("@F", (N, Y, Y, Y, N, X, N, X, X, X), _REFUSE, "a sound batch is out of order"),
    Case("@G", (N, Y, Y, Y, N, X, Y, Y, X, X), _REFUSE, "a copy is in place of synced records"),
    Case("@H", (N, Y, Y, Y, N, X, Y, N, Y, X), _REFUSE, "a copy precedes sound batches"),
    Case("@I", (N, Y, Y, Y, N, X, Y, N, N, X), _CUT,    "a copy follows the end"),
    Case("@J", (N, Y, Y, N, X, X, X, X, X, X), _REFUSE, "a whole batch has no known format"),
    Case("@K", (N, Y, N, X, X, X, X, Y, X, N), _REFUSE, "synced records are damaged"),
    Case("@L", (N, Y, N, X, X, X, X, N, Y, N), _REFUSE, "a bad batch precedes sound ones"),
    Case("@M", (N, Y, N, X, X, X, X, N, N, N), _CUT,    "the last batch is torn"),
    Case("@N", (N, N, X, X, X, X, X, Y, X, N), _REFUSE, "synced records are lost"),
    Case("@O", (N, N, X, X, X, X, X, N, Y, N), _REFUSE, "a hole precedes sound batches"),
    Case("@P", (N, N, X, X, X, X, X, N, N, N), _CUT,    "the tail is torn"),
    Case("@Q", (N, Y, N, X, X, X, X, X, X, Y), _MEND,   "a bad batch is stored elsewhere"),
    Case("@R", (N, N, X, X, X, X, X, X, X, Y), _MEND,   "lost batches are stored elsewhere"),
)
# fmt: on


def decide(facts: Facts) -> Case:
    """Return the case that applies; for each combination of facts there is exactly one."""
    return next(
        case
        for case in CASES
        if all(
            wanted is None or wanted == fact for wanted, fact in zip(case.facts, facts, strict=True)
        )
    )
