"""The journal: numbered entries, each of which changes the root at once or not at all.

An entry is made by creating its object, which fails if the number is taken. That one request is
the commit point of everything in the entry. A writer that is overtaken reads the entries that it
missed, decides again, and tries the next number. So all changes of a root happen one after another,
without locks, and no process can hold up another one.

A failed request has an unknown outcome, and a repeated request may find its own object. Every entry
therefore has a random mark: if a number is taken by an entry with the writer's own mark, the writer
has made it.

Entry N contains the entries since the last snapshot as well, so a process that is behind needs the
latest entry and perhaps a snapshot, not all that happened in between:

    number, mark, made_ms, actions [ … ]
    before [{mark, made_ms, actions}]         entries N-1, N-2 …, oldest first; as many as fit

The object `latest` names the last entry that its writer knew. It may be behind: the entries that
follow are found by asking for the next number until there is none. Without it, the journal is
listed from the last snapshot on.

Maintenance deletes entries that are more than a day old (`streamlog.bucket.collecting`), so their
numbers are free again. A process that was silent for an hour therefore no longer trusts that the
next number is the next entry: it reads the hint first, and if its own entry took that long, it
checks that the number had not been deleted before.
"""

import errno
import logging
import random as random_module
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from streamlog.binary.sealed import seal, unseal
from streamlog.bucket.actions import Action
from streamlog.bucket.entries import (
    Entry,
    KeptEntry,
    format_entry,
    format_since,
    parse_entry,
    parse_since,
)
from streamlog.bucket.keys import JOURNAL, LATEST, SNAPSHOTS, entry_key, number_of, snapshot_key
from streamlog.bucket.snapshots import MAX_SNAPSHOT_SIZE, format_snapshot, parse_snapshot
from streamlog.bucket.state import SNAPSHOT_EVERY, RootState
from streamlog.clock import Clock
from streamlog.errors import (
    CorruptCheckpointError,
    FileExistsAlreadyError,
    FileMissingError,
    StorageError,
    StreamLogError,
    UnavailableError,
    UnknownOutcomeError,
)
from streamlog.store.api import ObjectStore

__all__ = ["ENTRY", "HINT", "MAX_ENTRY_SIZE", "RootJournal"]

MAX_ENTRY_SIZE: Final = 64 << 20
_MAX_CARRIED: Final = 256 << 10  # bytes of earlier entries that an entry repeats
_MAX_SINCE: Final = 256 << 10  # bytes of entries in a snapshot that does not have the whole state
_MAX_HINT: Final = 1 << 10
_ATTEMPTS: Final = 100  # times a writer is overtaken before it gives up
_SILENT_MS: Final = 3600 * 1000  # far less than JOURNAL_KEPT_MS
_REPEATS: Final = 3  # of a request that failed, after those of the store itself
_DENIED: Final = (errno.EACCES, errno.EPERM)
ENTRY: Final = "entry"
HINT: Final = "latest"

_T = TypeVar("_T")
_logger = logging.getLogger(__name__)


class RootJournal:
    """The journal of one root, as far as this process has read it. Not for several threads.

    Args:
        store: The root's objects.
        clock: The clock.
        random: Makes the marks; `SystemRandom` by default, as workers may be forked.

    Attributes:
        state: The root after the last entry that was read.
    """

    def __init__(
        self, store: ObjectStore, clock: Clock, *, random: random_module.Random | None = None
    ) -> None:
        self._store, self._clock = store, clock
        self._random = random or random_module.SystemRandom()
        self._recent: list[KeptEntry] = []  # since the last number with a snapshot, oldest first
        self._base: int | None = None  # the last whole state that this process has seen stored
        self._since: list[KeptEntry] = []  # the entries after it, oldest first
        self._since_size = 0  # in bytes
        self._is_behind = True  # there may be more than one new entry
        self._seen = clock.now_ms(), clock.monotonic_ms()  # when the last look began
        self.state = RootState()

    @property
    def is_behind(self) -> bool:
        """Whether the last `refresh` left entries for the next one, or there was none yet."""
        return self._is_behind

    # ---- reading -----------------------------------------------------------------------------
    def refresh(self) -> RootState:
        """Read new entries, and return the state.

        One request if there is nothing new; two as a rule if there is. If other processes add
        entries all the time, some of the latest may be left for the next call.

        Raises:
            CorruptCheckpointError: An entry is damaged, or does not follow the one before it.
            StorageError: A request failed; what was read is kept.
        """
        seen = self._clock.now_ms(), self._clock.monotonic_ms()
        if self._is_behind or self._was_silent():
            self._jump()
        if self._read_next():  # a query finds its own last commit, and one of another writer
            self._is_behind = self._read_next() and self._read_next()
        self._seen = seen
        return self.state

    def _look(self) -> bool:
        """Read the next entry if there is one; return whether no later one can be there."""
        if self._is_behind or self._was_silent():
            self.refresh()
            return True
        seen = self._clock.now_ms(), self._clock.monotonic_ms()
        is_new = self._read_next()
        self._seen = seen
        return not is_new

    def _was_silent(self) -> bool:
        """Return whether entries may have been deleted since the last look, by either clock."""
        wall_ms, monotonic_ms = self._seen
        passed_ms = abs(self._clock.now_ms() - wall_ms)
        return max(passed_ms, self._clock.monotonic_ms() - monotonic_ms) > _SILENT_MS

    def _jump(self) -> None:
        """Read up to the entry that the hint names."""
        latest = self._hint() or self._listed()
        if latest <= self.state.number:
            self._is_behind = False
            return
        found = self._load(latest)
        if found is None:  # a delayed writer has put the hint back to an entry that is deleted
            latest = self._listed()
            found = self._load(latest) if latest > self.state.number else None
        if found is None:
            raise CorruptCheckpointError(
                "the journal lacks an entry that was made",
                path=self._path(entry_key(latest)),
                hint="restore the root from a copy",
            )
        missing: list[Entry] = []
        while found[0].number > self.state.number + 1:
            missing[:0] = [entry for entry in found if entry.number > self.state.number]
            before = found[0].number - 1
            if self._read_snapshot(before):
                found = []
                break
            earlier = self._load(before)
            if earlier is None:
                raise CorruptCheckpointError(
                    "the journal lacks an entry that was made", path=self._path(entry_key(before))
                )
            found = earlier
        for entry in [*found, *missing]:
            self._follow(entry)
        self._is_behind = False

    def _hint(self) -> int:
        """Return the number of the last entry that the writer of the hint knew, 0 if unknown."""
        try:
            content = self._store.get(LATEST, max_size=_MAX_HINT)
        except FileMissingError:
            return 0
        return unseal(HINT, content, self._path(LATEST)).integer("number")

    def _listed(self) -> int:
        """Return the number of the last entry, 0 if there is none, without the hint."""
        snapshots = [number_of(each.key) or 0 for each in self._store.list(SNAPSHOTS)]
        newest = max(snapshots, default=0)
        entries = self._store.list(JOURNAL, after=entry_key(newest) if newest else "")
        return max([newest, *(number_of(each.key) or 0 for each in entries)])

    def _read_snapshot(self, number: int) -> bool:
        """Read the state after an entry; return False if no snapshot of it can be used."""
        if number <= self.state.number or number % SNAPSHOT_EVERY:
            return False
        key = snapshot_key(number)
        content = self._stored(key)
        if content is None:
            return False
        since = parse_since(content, self._path(key))
        base = number if since is None else since.base
        if since is not None and base > self.state.number:
            content = self._stored(snapshot_key(base))
        if content is None:
            return False
        if base > self.state.number:  # else this state is further than that
            self.state = self._whole(content, base)
        self._begin_at(base)
        for entry in () if since is None else since.entries:
            if entry.number > self.state.number:
                self._follow(entry)
            else:
                self._keep(entry)
        return True

    def _begin_at(self, base: int | None) -> None:
        """Remember which whole state is stored, None if that is unknown, and no entry after it."""
        self._base, self._since, self._since_size = base, [], 0
        self._recent = []

    def _stored(self, key: str) -> bytes | None:
        try:
            return self._store.get(key, max_size=MAX_SNAPSHOT_SIZE)
        except FileMissingError:
            return None

    def _whole(self, content: bytes, number: int) -> RootState:
        """Return the state in a snapshot that has all of it."""
        path = self._path(snapshot_key(number))
        state = parse_snapshot(content, path)
        if state.number != number:
            raise CorruptCheckpointError(
                "snapshot is of another entry", path=path, got=state.number
            )
        return state

    def _read_next(self) -> bool:
        """Read the next entry; return False if there is none."""
        found = self._load(self.state.number + 1)
        if found is None:
            return False
        self._follow(found[-1])
        return True

    def _load(self, number: int) -> list[Entry] | None:
        """Return an entry and the ones that it repeats, oldest first; None if there is none."""
        key = entry_key(number)
        try:
            content = self._store.get(key, max_size=MAX_ENTRY_SIZE)
        except FileMissingError:
            return None
        values = unseal(ENTRY, content, self._path(key))
        if values.integer("number") != number:
            raise values.malformed("number", values.integer("number"), number)
        before = values.objects("before")
        first = number - len(before)
        return [parse_entry(value, first + index) for index, value in enumerate([*before, values])]

    def _follow(self, entry: Entry) -> None:
        """Take an entry into the state; ignore one that is known."""
        if entry.number <= self.state.number:
            return
        if entry.number > self.state.number + 1:
            raise CorruptCheckpointError(
                "the journal lacks an entry",
                path=self._path(entry_key(self.state.number + 1)),
                got=f"entry {entry.number} after entry {self.state.number}",
            )
        path = self._path(entry_key(entry.number))
        self._take(entry, self.state.after(entry.actions, entry.made_ms, path))

    def _take(self, entry: Entry, state: RootState) -> None:
        """Take the next entry, and the state after it."""
        self.state = state
        self._keep(entry)

    def _keep(self, entry: Entry) -> None:
        """Keep an entry for the objects that repeat it."""
        kept = KeptEntry.of(entry)
        self._recent.append(kept)
        if entry.number % SNAPSHOT_EVERY == 0:
            self._recent = []
        if self._base is not None:
            self._since.append(kept)
            self._since_size += kept.size
            if self._since_size > 2 * _MAX_SINCE:  # the next snapshot has the whole state
                self._base, self._since, self._since_size = None, [], 0

    # ---- writing -----------------------------------------------------------------------------
    def change(self, decide: Callable[[RootState], tuple[Sequence[Action], _T]]) -> _T:
        """Add an entry, decided on the state that it follows; durable on return.

        Args:
            decide: Returns the actions for a state, none if nothing is to be done, and what this
                call returns. Called again with the new state if another writer was faster.

        Raises:
            UnknownOutcomeError: A request failed again and again, so the entry may or may not be
                there. Repeat the call: if it was made, `decide` sees it.
            UnavailableError: Other writers were faster every time.
            StreamLogError: As `decide` raises; nothing was changed.
        """
        is_current = self._look()
        for _ in range(_ATTEMPTS):
            try:
                actions, result = decide(self.state)
                is_decided = bool(actions) or is_current
            except StreamLogError:
                is_decided = False
                if is_current:
                    raise
            if not is_decided:  # only an entry shows by itself that its state was the present one
                self.refresh()
                is_current = True
                continue
            if not actions or self._add(tuple(actions)):
                return result
            is_current = True
        raise UnavailableError(
            "other writers of the root were faster every time",
            path=self._store.url,
            got=f"{_ATTEMPTS} attempts",
        )

    def _add(self, actions: tuple[Action, ...]) -> bool:
        """Try to make the next entry; return False, with the new state, if the number is taken."""
        number = self.state.number + 1
        mark = f"{self._random.getrandbits(128):032x}"
        entry = Entry(number, mark, self._clock.now_ms(), actions)
        path = self._path(entry_key(number))
        state = self.state.after(actions, entry.made_ms, path)  # as every reader does, or refuses
        content = seal(
            ENTRY, {**format_entry(entry), "number": number, "before": self._carried()}, copies=1
        )
        if not self._create(entry, content):
            self.refresh()
            return False
        if self._was_silent() and not self._is_in_place(number):
            return False
        self._take(entry, state)
        self._publish()
        return True

    def _is_in_place(self, number: int) -> bool:
        """Return whether a new entry has not taken the number of one that was deleted.

        If it has, the entry is removed, and the state is the present one.
        """
        present = RootJournal(self._store, self._clock, random=self._random)
        try:
            present.refresh()
        except StorageError as error:
            raise UnknownOutcomeError(
                "an entry of the journal may have come too late",
                path=self._path(entry_key(number)),
                got=error.sentence,
                hint="repeat the request: if it was made, that is noticed",
            ) from error
        if number >= present.state.journal_start:
            return True
        _logger.warning("entry %d came too late: its number was taken and is deleted", number)
        self._store.delete([entry_key(number)])
        self.state, self._seen = present.state, present._seen
        self._begin_at(present._base)
        self._recent, self._since = present._recent, present._since
        self._since_size = present._since_size
        return False

    def _create(self, entry: Entry, content: bytes) -> bool:
        """Create an entry's object; return whether it is the one that has the number.

        A request whose answer was lost is repeated: it has the same mark, so it does not matter
        which of them arrives, or when.
        """
        key = entry_key(entry.number)
        failure: StorageError | None = None
        for _ in range(_REPEATS):
            try:
                if self._is_created(key, content):
                    return True
                found = self._load(entry.number)
                if found is not None:
                    return found[-1].mark == entry.mark
            except StorageError as error:
                _logger.warning("entry %d: %s", entry.number, error)
                failure = error
        cure = failure.hint if failure is not None and failure.errno in _DENIED else None
        again = "repeat the request: if it was made, that is noticed"
        raise UnknownOutcomeError(
            "an entry of the journal may or may not have been made",
            path=self._path(key),
            got=failure.sentence if failure else None,
            hint=f"{cure}; then {again}" if cure else again,
        ) from failure

    def _is_created(self, key: str, content: bytes) -> bool:
        try:
            self._store.create(key, content)
        except FileExistsAlreadyError:
            return False
        return True

    def _carried(self) -> list[dict[str, object]]:
        """Return the entries since the last snapshot that the next one repeats, oldest first."""
        carried: list[dict[str, object]] = []
        size = 0
        for entry in reversed(self._recent):
            size += entry.size
            if size > _MAX_CARRIED:
                break
            carried.append(entry.values)
        return carried[::-1]

    def put_hint(self) -> None:
        """Make the hint name the last entry that was read.

        Raises:
            StorageError: The request failed.
        """
        self._store.put(LATEST, seal(HINT, {"number": self.state.number}, copies=1))

    def _publish(self) -> None:
        """Write the snapshot that is due, or the hint; both only save requests."""
        number = self.state.number
        try:
            if number % SNAPSHOT_EVERY == 0:
                self._put_snapshot(number)
            else:
                self.put_hint()
        except StorageError as error:
            _logger.warning("entry %d is made, but not announced: %s", number, error)

    def _put_snapshot(self, number: int) -> None:
        """Write the snapshot of the last entry.

        It is the whole state if nobody may delete that of a mark, on which later ones depend, and
        wherever entries since the last one take more room than that is worth.
        """
        marked = self.state.marks[-1].number
        if self._base is not None and self._base >= marked and self._since_size <= _MAX_SINCE:
            self._store.put(snapshot_key(number), format_since(self._base, self._since))
            return
        self._store.put(snapshot_key(number), format_snapshot(self.state))
        self._base, self._since, self._since_size = number, [], 0

    def _path(self, key: str) -> str:
        return f"{self._store.url}/{key}"
