"""Roots in object stores: crashes at every request, failing requests, and other drivers.

After each fault another process reads what is left, continues as Spark would, reads again, and does
all maintenance. The invariants of directories must hold. Besides, no object may be left that the
journal does not name, and opening the root must take few requests.
"""

import errno
from collections.abc import Callable, Iterator
from random import Random
from typing import Final

from streamlog.bucket.keys import JOURNAL, READERS, SNAPSHOTS, STAGING, epochs_key, files_of
from streamlog.bucket.root import BucketRoot
from streamlog.errors import StreamLogError
from streamlog.fs.faults import Moment, SimulatedCrash
from streamlog.store.api import ObjectStore
from streamlog.store.faults import FaultyStore, StoreFault
from streamlog.store.remote import open_store
from tests.programs.reliability.history import (
    Crashed,
    Event,
    History,
    Outcome,
    Raised,
    UnderWay,
    Wrote,
)
from tests.programs.reliability.invariants import Harm, Violation, check
from tests.programs.reliability.kinds.survival import FIRST_LIFE, SECOND_LIFE, Case
from tests.programs.reliability.object_subject import ObjectSubject
from tests.programs.reliability.query_writer import APP
from tests.programs.reliability.workloads import Workload

OPENING: Final = 7  # requests; 5 with a hint, and two listings without
RIVAL_LIFE: Final = 77
WRITING: Final = ("create", "put", "upload", "delete")
ALWAYS: Final = 1_000_000
FAILURES: Final[dict[str, Callable[[int], list[StoreFault]]]] = {
    "one answer is lost": lambda first: [StoreFault(first=first, moment=Moment.AFTER)],
    "three answers are lost": lambda first: [StoreFault(first=first, count=3, moment=Moment.AFTER)],
    "it answers 503 once": lambda first: [StoreFault(first=first)],
    "it answers 503 from then on": lambda first: [StoreFault(first=first, count=ALWAYS)],
    "it does one request later": lambda first: [StoreFault(first=first, late_by=1 + first % 5)],
    "it does three requests later": lambda first: [
        StoreFault(first=first, count=3, late_by=1 + first % 5)
    ],
    "it does one request after the process is dead": lambda first: [
        StoreFault(first=first, is_crash=True, late_by=ALWAYS)
    ],
    "a body is cut short": lambda first: [StoreFault(first=first, moment=Moment.TORN)],
    "it is full": lambda first: _writes_fail(first, errno.ENOSPC),
    "it is read-only": lambda first: _writes_fail(first, errno.EACCES),
    "the credentials are wrong": lambda first: [
        StoreFault(first=first, count=ALWAYS, number=errno.EPERM)
    ],
}


class TroubledStore(FaultyStore):
    """A store whose faults begin at a request, counted over all operations.

    Args:
        store: The store that does the work.
        faults: The faults; those of one operation count only its requests.
        rival: Called once, before the request with the number `at`.
        at: That number; 0 for never.

    Attributes:
        inner: The store that does the work.
    """

    def __init__(
        self,
        store: ObjectStore,
        faults: list[StoreFault],
        *,
        rival: Callable[[], None] | None = None,
        at: int = 0,
    ) -> None:
        super().__init__(store, faults)
        self.inner = store
        self._rival, self._at = rival, at

    def _check_alive(self) -> None:
        super()._check_alive()
        if self._rival is not None and len(self.requests) + 1 == self._at:
            rival, self._rival = self._rival, None
            rival()


# ---- the kinds --------------------------------------------------------------------------------
def object_store_crashes(workload: Workload, random: Random) -> Iterator[Case]:
    """The process dies after each request, which is also before the next one."""
    first, requests = _rehearse(workload)
    for number in range(first, len(requests) + 1):
        fault = StoreFault(first=number, moment=Moment.AFTER, is_crash=True)
        store, history = _suffer(workload, [fault])
        before = [*history, Crashed(lost_power=False)]
        what = f"a crash after request {number}, {requests[number - 1]}"
        yield Case(what, _survive(store, before, life=SECOND_LIFE))


def object_store_failures(workload: Workload, random: Random) -> Iterator[Case]:
    """Each request fails in one of the ways of a store, or meets another driver."""
    first, requests = _rehearse(workload)
    for number in range(first, len(requests) + 1):
        name = random.choice(sorted(FAILURES))
        store, history = _suffer(workload, FAILURES[name](number))
        what = f"{name}, at request {number}, {requests[number - 1]}"
        yield Case(what, _survive(store, history, life=SECOND_LIFE))
        store, history = _meet(workload, number)
        what = f"another driver at request {number}, {requests[number - 1]}"
        yield Case(what, _survive(store, history, life=SECOND_LIFE))


def _writes_fail(first: int, number: int) -> list[StoreFault]:
    """Fail all writes from about a request on: each kind counts its own requests."""
    return [
        StoreFault(operation=each, first=max(1, first // 4), count=ALWAYS, number=number)
        for each in WRITING
    ]


# ---- performing -------------------------------------------------------------------------------
def _ground(workload: Workload) -> ObjectStore:
    """Return a store with the initial state of a workload."""
    memory = open_store("memory:///")
    if not workload.on_nothing:
        ObjectSubject(memory, [], life=0, is_compacted=_is_compacted(workload))
    return memory


def _is_compacted(workload: Workload) -> bool:
    return "clean" in workload.operations


def _rehearse(workload: Workload) -> tuple[int, list[str]]:
    """Return the number of the first request with a fault, and all requests."""
    store = FaultyStore(_ground(workload))
    subject = _open(store, [], workload)
    first = 1
    for number, operation in enumerate(workload.operations, 1):
        if number == workload.unbroken + 1 and workload.unbroken:
            first = len(store.requests) + 1
        subject.perform(operation)
    return first, [f"{each.operation} {each.key}" for each in store.requests]


def _open(store: ObjectStore, history: History, workload: Workload) -> ObjectSubject:
    return ObjectSubject(store, history, life=FIRST_LIFE, is_compacted=_is_compacted(workload))


def _suffer(workload: Workload, faults: list[StoreFault]) -> tuple[TroubledStore, History]:
    """Perform a workload with faults; return the store, and the events."""
    store = TroubledStore(_ground(workload), faults)
    history: History = []
    _perform(store, history, workload)
    return store, history


def _meet(workload: Workload, number: int) -> tuple[TroubledStore, History]:
    """Perform a workload while another driver does its next step at a request."""
    memory = _ground(workload)
    history: History = []
    mine: list[ObjectSubject] = []

    def rival() -> None:
        ids = mine[0].ids if mine else None
        other = ObjectSubject(memory, history, life=RIVAL_LIFE, ids=ids)
        for operation in ("commit again", "append", "flush"):
            other.perform(operation)

    store = TroubledStore(memory, [], rival=rival, at=number)
    _perform(store, history, workload, mine)
    return store, history


def _perform(
    store: ObjectStore,
    history: History,
    workload: Workload,
    opened: list[ObjectSubject] | None = None,
) -> None:
    try:
        subject = _open(store, history, workload)
        if opened is not None:
            opened.append(subject)
        for operation in workload.operations:
            subject.perform(operation)
    except SimulatedCrash:
        pass
    except StreamLogError as error:  # the root cannot be opened
        history.append(Raised("opening", repr(error), is_typed=True))


# ---- what must hold then ----------------------------------------------------------------------
def _survive(troubled: TroubledStore, before: list[Event], *, life: int) -> list[Violation]:
    """Let another process read what is left, continue as Spark would, read and clean up.

    What the first process asked for, and did not get, arrives while the other one is at work.
    """
    history: History = list(before)
    memory = troubled.inner
    store = TroubledStore(memory, [], rival=troubled.deliver, at=1 + len(troubled.requests) % 12)
    raised = len([each for each in history if isinstance(each, Raised)])
    extra: list[Violation] = []
    try:
        history.append(UnderWay(is_possible=True))
        subject = ObjectSubject(store, history, life=life)
        subject.see()
        if any(_is_open_commit(each) for each in history):
            subject.perform("commit again")
        for operation in ("append", "append other", "commit"):
            subject.perform(operation)
        subject.see()
        troubled.deliver()  # no request is under way for as long as the next step waits
        history.append(UnderWay(is_possible=False))
        for operation in ("wait", "retire", "retire"):
            subject.perform(operation)
        subject.see()
        extra = [*_nothing_is_left(subject.root), *_opening_is_cheap(memory, subject)]
    except StreamLogError as error:
        history.append(Raised("opening", repr(error), is_typed=True))
    except Exception as error:  # noqa: BLE001 - any error that is not ours is a finding
        history.append(Raised("opening", repr(error), is_typed=False))
    later = [each for each in history if isinstance(each, Raised)][raised:]
    works = [
        Violation("work_continues", Harm.OTHER, f"{each.operation}: {each.error}") for each in later
    ]
    return [*check(history), *works, *extra]


def _is_open_commit(event: Event) -> bool:
    return isinstance(event, Wrote) and event.writer == APP and event.outcome is Outcome.UNKNOWN


def _nothing_is_left(root: BucketRoot) -> Iterator[Violation]:
    """Every object is named by the journal once maintenance has had its time."""
    state = root.refresh()
    named = {file for key in state.uses for file in (*files_of(key), epochs_key(key))}
    for each in root.store.list(""):
        if not each.key.startswith((JOURNAL, SNAPSHOTS, READERS)) and each.key not in named:
            is_state = each.key.startswith(".streamlog/") and not each.key.startswith(STAGING)
            if not is_state:
                yield Violation("no_object_is_left", Harm.OTHER, each.key)
    for name in state.builds:
        yield Violation("no_object_is_left", Harm.OTHER, f"build {name}")
    for garbage in state.garbage:
        yield Violation("no_object_is_left", Harm.OTHER, f"garbage {garbage.key}")


def _opening_is_cheap(memory: ObjectStore, subject: ObjectSubject) -> Iterator[Violation]:
    counted = FaultyStore(memory)
    root = BucketRoot(counted, clock=subject.clock)
    state = root.refresh()
    if len(counted.requests) > OPENING:
        detail = f"{len(counted.requests)} requests"
        yield Violation("opening_is_cheap", Harm.OTHER, detail)
    if state != subject.root.state:
        yield Violation("readers_agree", Harm.LOST, "two processes know different states")
