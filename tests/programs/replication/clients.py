"""Producers and consumers of the simulated world."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from streamlog.records.acks import Acks
from streamlog.replication.messages import Errors
from tests.programs.replication.disk import (
    ABORT,
    COMMIT,
    DATA,
    TRANSACTIONAL,
    Record,
    kind_of,
    producer_of,
    record_id,
)
from tests.programs.replication.replica import Append, Replica

if TYPE_CHECKING:
    from tests.programs.replication.world import World

MOST_ATTEMPTS = 12


class Producer:
    """Sends one append after the other; an idempotent one repeats it until it is acknowledged.

    Args:
        number: Its number; a new session gets a new one.
        is_idempotent: Whether it sends again without a copy in the log.
        is_transactional: Whether a commit or an abort marker ends every few appends.
    """

    def __init__(
        self, world: "World", number: int, *, is_idempotent: bool, is_transactional: bool
    ) -> None:
        self._world = world
        self.number = number
        self._is_idempotent = is_idempotent
        self._is_transactional = is_transactional
        self._sequence = 0
        self._append: Append | None = None
        self._attempts = 0
        self._deadline = 0
        self._in_transaction = 0
        self.acknowledged = 0

    def restart(self) -> None:
        """Forget everything, and begin a new session: the topic is another one."""
        self._append = None
        self._sequence = self._in_transaction = 0
        self.number = self._world.next_producer(self)

    def poke(self, *, is_last: bool = False) -> None:
        """Send the next append, or the last one again if its answer is overdue."""
        world = self._world
        if self._append is None:
            if not is_last or self._in_transaction:
                self._send(self._next(is_last=is_last))
        elif world.time >= self._deadline:
            self._after_failure()

    @property
    def is_idle(self) -> bool:
        return self._append is None and not self._in_transaction

    def _next(self, *, is_last: bool) -> Append:
        world = self._world
        kind, count, acks = DATA, 1 + world.pick(3), Acks.ALL
        if self._is_transactional:
            kind = TRANSACTIONAL
            if self._in_transaction and (is_last or world.pick(3) == 0):
                kind, count = (COMMIT, ABORT)[world.pick(2)], 1
            self._in_transaction = 0 if kind in (COMMIT, ABORT) else self._in_transaction + 1
        elif not self._is_idempotent:
            acks = (Acks.NONE, Acks.LEADER, Acks.LEADER, Acks.ALL)[world.pick(4)]
        first = self._sequence
        self._sequence += count
        identities = tuple(record_id(self.number, first + each, kind) for each in range(count))
        self._attempts = 0
        return Append(self.number, 0, identities, acks, self._is_idempotent)

    def _send(self, append: Append) -> None:
        world = self._world
        self._append = append._replace(token=world.count())
        self._attempts += 1
        self._deadline = world.time + world.profile.patience + 20
        world.history.sent.update(append.identities)
        world.send_append(self._append)

    def _retry(self, append: Append) -> None:
        if self._append is not None and self._append.identities == append.identities:
            self._send(append)

    def on_answer(self, append: Append, error: Errors) -> None:
        """Take an answer; late ones are ignored."""
        if self._append is None or append.token != self._append.token:
            return
        if error is Errors.NONE:
            self._append = None
            self.acknowledged += 1
        elif error is Errors.NOT_ENOUGH_REPLICAS and not self._is_idempotent:
            self._world.history.refused.update(append.identities)
            self._append = None
        else:
            self._after_failure()

    def _after_failure(self) -> None:
        append = self._append
        assert append is not None
        if self._is_idempotent and self._attempts < MOST_ATTEMPTS:
            self._append = append._replace(token=-1)
            self._deadline = self._world.time + self._world.profile.patience
            self._world.after(2 + self._world.pick(8), self._retry, append)
            return
        self._append = None  # outcome unknown
        if self._is_idempotent:
            self.number = self._world.next_producer(self)
            self._sequence = self._in_transaction = 0


class Consumer:
    """Polls any replica below its high watermark; its position never goes back.

    Attributes:
        seen: What it saw with read_committed: offsets and records.
    """

    def __init__(self, world: "World", *, is_read_committed: bool) -> None:
        self._world = world
        self._position = 0
        self._is_read_committed = is_read_committed
        self.seen: list[tuple[int, Record]] = []

    def restart(self) -> None:
        """Begin with the first record of another topic."""
        self._position = 0
        self.seen = []

    def poll(self, replica: Replica) -> int:
        """Read what the replica shows from the position on; return the number of records."""
        disk, end = replica.disk, replica.high_watermark
        start = max(self._position, disk.log_start_offset)
        if self._is_read_committed:
            end = last_stable_offset(disk.records, disk.log_start_offset, end)
        if start >= end:
            return 0
        records = disk.records_from(start, end)
        self._world.history.on_read(replica, start, records)
        if self._is_read_committed:
            aborted = aborted_records(disk.records)
            for at, record in enumerate(records, start):
                if kind_of(record[1]) in (DATA, TRANSACTIONAL) and record[1] not in aborted:
                    self.seen.append((at, record))
        self._position = end
        return len(records)


def last_stable_offset(records: Sequence[Record], start: int, high_watermark: int) -> int:
    """Return the offset of the first open transaction below the high watermark, or that."""
    opened: dict[int, int] = {}
    for at in range(high_watermark - start):
        identity = records[at][1]
        kind = kind_of(identity)
        if kind == TRANSACTIONAL:
            opened.setdefault(producer_of(identity), start + at)
        elif kind in (COMMIT, ABORT):
            opened.pop(producer_of(identity), None)
    return min(opened.values(), default=high_watermark)


def aborted_records(records: Sequence[Record]) -> set[int]:
    """Return the ids of the records whose transaction was aborted."""
    aborted: set[int] = set()
    ending: dict[int, int] = {}
    for _, identity in reversed(records):
        kind, producer = kind_of(identity), producer_of(identity)
        if kind in (COMMIT, ABORT):
            ending[producer] = kind
        elif kind == TRANSACTIONAL and ending.get(producer) == ABORT:
            aborted.add(identity)
    return aborted
