"""What to do where a segment's log file is not as it should be: a decision table.

What is wrong is either a *torn tail*, bytes that a crash left of an append that nobody was
promised, or *damage* to records that somebody was promised. The first is cut, and what is cut is
kept aside; the second is refused, because cutting it would turn damage into loss. Where somebody
else keeps the very bytes that belong at a bad place, they are written there. What decides is a
table of ten facts (`CASES`); the tests walk all of their combinations.

The *mark* is the recovery point: every record below it was synced. It may lag behind, so a bad
batch above it is a torn tail only where nothing sound follows: neither a later segment nor, in
what is left of this one, a single whole batch of right checksum and offsets that could go on.

Kafka cuts at the first bad batch, wherever it is, and deletes all later segments. It does not
look at offsets (unless an index entry falls due), leader epochs and magic, which lie outside the
checksum; here they are facts like the others. Source: LogSegment.recover.
"""

from enum import Enum
from typing import Final, NamedTuple

__all__ = ["CASES", "Case", "Facts", "RecoveryVerdict", "decide"]


class RecoveryVerdict(Enum):
    """What to do at a place in the segment."""

    DONE = "the end: nothing to do"
    KEEP = "keep the batch and go on"
    CUT = "cut here, and keep aside what is cut"
    MEND = "write the batches that belong here, and look again"
    REFUSE = "raise an error and change nothing"


class Facts(NamedTuple):
    """What is known about a place. Facts that do not apply are False.

    Attributes:
        is_end: The file ends here.
        is_whole: As many bytes stand here as the length field claims.
        is_unharmed: The checksum fits them.
        is_readable: They say they are of a format there is: magic 0, 1 or 2.
        follows: Their offsets go on behind the last batch and fit into the segment.
        keeps_epoch: Their leader epoch is none, or not below the last one.
        is_repeated: A batch of just these offsets stands further in front, or their offsets
            lie below the segment: what stands here is a copy.
        is_below_mark: Records that were synced should stand here.
        is_followed: Something sound comes later.
        is_known: The batches that belong here, in front of something sound, are kept elsewhere.
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
    """A row of the table: facts in the order of `Facts`, None where one does not matter."""

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
    #      end, whole, crc, magic, order, epoch, copy, below the mark, more behind, known
    Case("@A", (Y, X, X, X, X, X, X, N, X, X), _DONE,   "the end of the segment"),
    Case("@B", (Y, X, X, X, X, X, X, Y, Y, X), _DONE,   "the next segment goes on"),
    Case("@C", (Y, X, X, X, X, X, X, Y, N, X), _REFUSE, "synced records are missing"),
    Case("@D", (N, Y, Y, Y, Y, Y, X, X, X, X), _KEEP,   "a sound batch"),
    Case("@E", (N, Y, Y, Y, Y, N, X, X, X, X), _REFUSE, "the leader epoch goes back"),
    Case("@F", (N, Y, Y, Y, N, X, N, X, X, X), _REFUSE, "a sound batch is out of order"),
    Case("@G", (N, Y, Y, Y, N, X, Y, Y, X, X), _REFUSE, "a copy stands where synced ones should"),
    Case("@H", (N, Y, Y, Y, N, X, Y, N, Y, X), _REFUSE, "a copy stands in front of sound batches"),
    Case("@I", (N, Y, Y, Y, N, X, Y, N, N, X), _CUT,    "a copy stands behind the end"),
    Case("@J", (N, Y, Y, N, X, X, X, X, X, X), _REFUSE, "a whole batch is of no known format"),
    Case("@K", (N, Y, N, X, X, X, X, Y, X, N), _REFUSE, "synced records are damaged"),
    Case("@L", (N, Y, N, X, X, X, X, N, Y, N), _REFUSE, "a bad batch stands before sound ones"),
    Case("@M", (N, Y, N, X, X, X, X, N, N, N), _CUT,    "the last batch is torn"),
    Case("@N", (N, N, X, X, X, X, X, Y, X, N), _REFUSE, "synced records are lost"),
    Case("@O", (N, N, X, X, X, X, X, N, Y, N), _REFUSE, "a hole gapes in front of sound batches"),
    Case("@P", (N, N, X, X, X, X, X, N, N, N), _CUT,    "the tail is torn"),
    Case("@Q", (N, Y, N, X, X, X, X, X, X, Y), _MEND,   "a bad batch is kept elsewhere"),
    Case("@R", (N, N, X, X, X, X, X, X, X, Y), _MEND,   "lost batches are kept elsewhere"),
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
