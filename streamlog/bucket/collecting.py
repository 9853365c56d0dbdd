"""Deleting objects that nothing needs: garbage, orphans, abandoned builds, old entries.

No object is deleted that a later entry might name. For each kind, an entry of the journal first
makes it impossible, so it does not matter whether the deletion or a commit comes first:

    garbage          the journal named it and let go of it; it is never named again. Readers of an
                     earlier state have `file.delete.delay.ms`, recorded readers as long as they
                     need. It is deleted first and forgotten by an entry then: a crash in between
                     repeats the deletion.
    staged orphans   a horizon in the journal refuses commits of what was staged before it
    builds           a build is abandoned in the journal, which refuses its swaps
    entries          the journal's new start is an entry; a process that was silent for so long
                     looks for it (`streamlog.bucket.journal`)

Listings are bounded: staged objects are sorted by time and listed up to the horizon; a build has
its own prefix; entries are listed from the oldest on, once for many.
"""

import logging
from collections.abc import Iterable, Sequence
from typing import Final

from streamlog.bucket.actions import (
    AbandonBuilds,
    Action,
    Collected,
    EndBuilds,
    SetJournalStart,
    SetStagedHorizon,
)
from streamlog.bucket.journal import RootJournal
from streamlog.bucket.keys import (
    JOURNAL,
    SNAPSHOTS,
    STAGING,
    entry_key,
    epochs_key,
    files_of,
    segment_directory,
    snapshot_key,
    staged_before,
    staged_ms,
)
from streamlog.bucket.state import JOURNAL_KEPT_MS, RootState
from streamlog.clock import Clock
from streamlog.commits.retirement import STAGED_FILE_AGE_MS
from streamlog.config.server_config import ServerConfig
from streamlog.store.api import ObjectStore

__all__ = ["BucketCollector"]

BUILD_AGE_MS: Final = 24 * 3600 * 1000  # after which a build is given up
_AT_ONCE: Final = 1000  # objects of the journal's garbage in one entry

_logger = logging.getLogger(__name__)


class BucketCollector:
    """Deletes the objects of a root that nothing needs.

    Args:
        store: The root's objects.
        journal: Its journal.
        clock: The clock.
    """

    def __init__(self, store: ObjectStore, journal: RootJournal, clock: Clock) -> None:
        self._store, self._journal, self._clock = store, journal, clock

    def collect(self, *, seen: int | None) -> int:
        """Delete everything that is due; return the number of objects.

        Args:
            seen: The entry of the oldest state that a recorded reader may use; None without one.

        Raises:
            StorageError: A request failed; the next call continues.
        """
        now_ms = self._clock.now_ms()
        deleted = self.collect_garbage(now_ms, seen)
        deleted += self.collect_orphans(now_ms)
        deleted += self.collect_builds(now_ms)
        return deleted + self.trim_journal(now_ms)

    # ---- garbage -----------------------------------------------------------------------------
    def collect_garbage(self, now_ms: int, seen: int | None) -> int:
        """Delete what the journal let go of long enough ago."""
        deleted = 0
        while True:
            due = self._due(self._journal.state, now_ms, seen)[:_AT_ONCE]
            if not due:
                return deleted
            keys = self._files(due)
            self._store.delete(keys)
            deleted += len(keys)
            gone = set(due)

            def decide(state: RootState, gone: set[str] = gone) -> tuple[Sequence[Action], None]:
                known = tuple(each.key for each in state.garbage if each.key in gone)
                return ([Collected(keys=known)] if known else []), None

            self._journal.change(decide)

    def _due(self, state: RootState, now_ms: int, seen: int | None) -> list[str]:
        delays: dict[str, int] = {}
        due = []
        for each in state.garbage:
            if each.topic not in delays:
                delays[each.topic] = _delete_delay_ms(state, each.topic)
            is_old = now_ms - each.since_ms >= delays[each.topic]
            if is_old and (seen is None or each.number <= seen):
                due.append(each.key)
        return due

    def _files(self, due: Sequence[str]) -> list[str]:
        """Return the keys to delete: each with its indexes; a directory that is left, wholly."""
        state, gone = self._journal.state, set(due)
        kept = {*state.uses, *(each.key for each in state.garbage if each.key not in gone)}
        directories = {epochs_key(key) for key in kept}
        keys = [name for key in due for name in files_of(key)]
        epochs = {epochs_key(key) for key in due if staged_ms(key) is None}
        return keys + sorted(epochs - directories)

    # ---- orphans -----------------------------------------------------------------------------
    def collect_orphans(self, now_ms: int) -> int:
        """Delete objects that were staged long ago and not committed."""
        horizon_ms = now_ms - STAGED_FILE_AGE_MS
        if horizon_ms <= 0:
            return 0
        old = self._staged_before(horizon_ms)
        if not self._unnamed(old):
            return 0
        self._journal.change(
            lambda state: (
                [SetStagedHorizon(staged_ms=horizon_ms)]
                if state.staged_horizon_ms < horizon_ms
                else [],
                None,
            )
        )
        orphans = self._unnamed(old)  # what was committed before the horizon was set is named now
        self._store.delete(orphans)
        _logger.info("deleted %d staged objects of dead attempts", len(orphans))
        return len(orphans)

    def _staged_before(self, time_ms: int) -> list[str]:
        end, found = staged_before(time_ms), []
        for each in self._store.list(STAGING):
            if each.key >= end:
                break
            found.append(each.key)
        return found

    def _unnamed(self, keys: Iterable[str]) -> list[str]:
        state = self._journal.state
        named = {*state.uses, *(each.key for each in state.garbage)}
        return [key for key in keys if key not in named]

    # ---- builds ------------------------------------------------------------------------------
    def collect_builds(self, now_ms: int) -> int:
        """Give up builds that have begun long ago, and delete what they uploaded in vain."""

        def decide(state: RootState) -> tuple[Sequence[Action], tuple[str, ...]]:
            old = tuple(
                name
                for name, build in state.builds.items()
                if now_ms - build.begun_ms >= BUILD_AGE_MS
            )
            fresh = tuple(name for name in old if not state.builds[name].is_abandoned)
            return ([AbandonBuilds(builds=fresh)] if fresh else []), old

        names = self._journal.change(decide) if self._has_old_build(now_ms) else ()
        deleted = 0
        for name in names:
            deleted += self._remove_build(name)
        if names:
            self._journal.change(
                lambda state: (
                    [EndBuilds(builds=names)] if any(n in state.builds for n in names) else [],
                    None,
                )
            )
        return deleted

    def _has_old_build(self, now_ms: int) -> bool:
        builds = self._journal.state.builds.values()
        return any(now_ms - build.begun_ms >= BUILD_AGE_MS for build in builds)

    def _remove_build(self, name: str) -> int:
        state = self._journal.state
        build = state.builds.get(name)
        if build is None:  # another process has done it
            return 0
        named = {*state.uses, *(each.key for each in state.garbage)}
        kept = {file for key in named for file in (*files_of(key), epochs_key(key))}
        unused = [
            each.key
            for partition in build.partitions
            for each in self._store.list(segment_directory(partition, name))
            if each.key not in kept
        ]
        self._store.delete(unused)
        return len(unused)

    # ---- the journal -------------------------------------------------------------------------
    def trim_journal(self, now_ms: int) -> int:
        """Delete entries and snapshots that were replaced by a snapshot a day ago."""
        state = self._journal.state
        old = [each for each in state.marks if each.made_ms <= now_ms - JOURNAL_KEPT_MS]
        if not old or old[-1].number <= state.journal_start:
            return 0
        start = old[-1].number
        if self._store.stat(snapshot_key(start)) is None:  # it failed to be written
            return 0
        self._journal.change(
            lambda state: (
                [SetJournalStart(number=start)] if state.journal_start < start else [],
                None,
            )
        )
        self._journal.put_hint()  # an older one would name an entry that is deleted next
        gone = [
            *self._listed_before(JOURNAL, entry_key(start)),
            *self._listed_before(SNAPSHOTS, snapshot_key(start)),
        ]
        self._store.delete(gone)
        _logger.info("deleted %d entries and snapshots of the journal", len(gone))
        return len(gone)

    def _listed_before(self, prefix: str, end: str) -> list[str]:
        found = []
        for each in self._store.list(prefix):
            if each.key >= end:
                break
            found.append(each.key)
        return found


def _delete_delay_ms(state: RootState, topic: str) -> int:
    """Return `file.delete.delay.ms` of a topic; the root's if the topic is deleted."""
    if topic in state.topics:
        return state.config_of(topic).file_delete_delay_ms
    return ServerConfig.from_properties(state.config).log_config({}).file_delete_delay_ms
