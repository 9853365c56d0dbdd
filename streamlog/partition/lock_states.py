"""The flags in a partition's lock file: which state follows from which event.

A state is a set of four flags, bits of one int, so there are sixteen.

    dirty        a holder is changing the log; it died in the act where the next holder finds this
    pending      a decided commit may name this partition
    distrusted   records are being synced, or a sync failed: above the recovery point the page
                 cache may differ from the disk
    epoch due    offsets may be lost: a new leader epoch must start, after pending decisions have
                 restored what they hold

`RULES` says for each event in which states it may happen and which flags it sets and clears.
`AFTER` is the table made of it, one row an event; looking up a state in which the event may not
happen raises `IllegalTransitionError`. The tests walk all events in all states.
"""

from enum import Enum
from typing import Final, NamedTuple

__all__ = [
    "AFTER",
    "CLEAN",
    "DISTRUSTED",
    "MUST_LOOK",
    "KNOWN_FLAGS",
    "RULES",
    "IllegalTransitionError",
    "LockEvent",
    "StateFlag",
]


class StateFlag:
    """Bits of a state.

    Plain numbers: an append looks at them ten times, and an `IntFlag` takes 2 µs to answer.
    """

    NONE: Final = 0
    DIRTY: Final = 1
    PENDING: Final = 2
    DISTRUSTED: Final = 4
    EPOCH_DUE: Final = 8


KNOWN_FLAGS: Final = 15


class LockEvent(Enum):
    """What changes the state; each is written to the lock file."""

    CHANGE_BEGINS = "the log is about to be changed"
    SYNC_BEGINS = "records are about to be synced"
    CHANGE_ENDS = "the log was changed, and its state is known"
    FILES_DOUBTED = "the files may not be what the state says"
    ADOPTED = "a handle took over what the last holder left"
    RECOVERED = "a handle scanned the log"
    OFFSETS_LOST = "the scan found that offsets may be lost"
    DECISION_COMES = "a commit that names the partition is about to be decided"
    DECISIONS_APPLIED = "no decision waits for the partition"
    EPOCH_RAISED = "a new leader epoch has started"
    REPLICA_MOVES = "a replica's high watermark was raised, or its leader epochs changed"


class Rule(NamedTuple):
    """A row: flags that must stand and must not, flags that are set and cleared."""

    needs: int
    forbids: int
    sets: int
    clears: int


_NONE, _DIRTY, _PENDING = StateFlag.NONE, StateFlag.DIRTY, StateFlag.PENDING
_DISTRUSTED, _EPOCH_DUE = StateFlag.DISTRUSTED, StateFlag.EPOCH_DUE
_UNCLEAN: Final = _DIRTY | _DISTRUSTED

# fmt: off
RULES: Final = {
    #                                 needs       forbids              sets         clears
    LockEvent.CHANGE_BEGINS:     Rule(_NONE,      _UNCLEAN,            _DIRTY,      _NONE),
    # Set before the sync: a disk that refuses a sync may refuse the note of it as well.
    LockEvent.SYNC_BEGINS:       Rule(_NONE,      _NONE,               _UNCLEAN,    _NONE),
    LockEvent.CHANGE_ENDS:       Rule(_DIRTY,     _NONE,               _NONE,       _UNCLEAN),
    LockEvent.FILES_DOUBTED:     Rule(_NONE,      _NONE,               _DIRTY,      _NONE),
    LockEvent.ADOPTED:           Rule(_NONE,      _UNCLEAN,            _NONE,       _NONE),
    # The log may end below what was applied before, so decisions are looked at again.
    LockEvent.RECOVERED:         Rule(_NONE,      _NONE,               _PENDING,    _UNCLEAN),
    LockEvent.OFFSETS_LOST:      Rule(_PENDING,   _UNCLEAN,            _EPOCH_DUE,  _NONE),
    LockEvent.DECISION_COMES:    Rule(_NONE,      _NONE,               _PENDING,    _NONE),
    LockEvent.DECISIONS_APPLIED: Rule(_NONE,      _NONE,               _NONE,       _PENDING),
    # Not before decisions are applied: they restore offsets with the epoch that these had.
    LockEvent.EPOCH_RAISED:      Rule(_EPOCH_DUE, _UNCLEAN | _PENDING, _NONE,       _EPOCH_DUE),
    # Within a change the new state is written at its end.
    LockEvent.REPLICA_MOVES:     Rule(_NONE,      _UNCLEAN,            _NONE,       _NONE),
}
# fmt: on


class IllegalTransitionError(AssertionError):
    """An event happened in a state in which it may not: a bug in this package."""


class _Row(dict[int, int]):
    """The state after one event, by the state before; a dict, to cost an append no call."""

    def __init__(self, event: LockEvent, rule: Rule) -> None:
        super().__init__(
            (state, (state | rule.sets) & ~rule.clears)
            for state in range(KNOWN_FLAGS + 1)
            if state & rule.needs == rule.needs and not state & rule.forbids
        )
        self._event = event

    def __missing__(self, state: int) -> int:
        raise IllegalTransitionError(f"{self._event.name} in state {state:#06b}")


AFTER: Final = {event: _Row(event, rule) for event, rule in RULES.items()}
# States in which the files are as the state says.
CLEAN: Final = frozenset(state for state in range(KNOWN_FLAGS + 1) if not state & _UNCLEAN)
# States in which the page cache may differ from the disk above the recovery point.
DISTRUSTED: Final = frozenset(state for state in range(KNOWN_FLAGS + 1) if state & _DISTRUSTED)
# States in which a holder must look at files or decisions, even the handle that left them.
MUST_LOOK: Final = frozenset(
    state for state in range(KNOWN_FLAGS + 1) if state & (_DIRTY | _PENDING)
)
