"""Commits to a root in an object store: stage, decide; nothing has to be applied.

The rules are those of `streamlog.commits`: identity, fingerprint and the table of replays. What
differs is the commit point. It is one entry of the journal, which names the staged extents and
gives them their offsets, for all partitions at once. If another writer takes the entry's number,
the commit is judged and placed again on the new state, so two drivers with the same identity, or
with the same partition, cannot both succeed from one state.

The tasks encode by the settings of the topics that the driver has read, so their batches are not
read again. If the settings have changed before the decision, they are, and checked.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamlog.bucket.actions import Action, BucketExtent, Commit, CommitPart
from streamlog.bucket.journal import RootJournal
from streamlog.bucket.keys import staged_key, staged_ms
from streamlog.bucket.state import RootState
from streamlog.clock import Clock
from streamlog.commits.admission import StagedCommit, StagedPart, check_part, gather
from streamlog.commits.commit_log import CommitOutcome
from streamlog.commits.decisions import DecidedExtent, DecidedFile
from streamlog.commits.extents import CheckedExtents
from streamlog.commits.fingerprint import Fingerprint
from streamlog.commits.history import CommittedRange, Ledger
from streamlog.commits.identity import CommitIdentity, check_identity
from streamlog.commits.replay import OnMismatch, ReplayRule, Verdict, judge_commit
from streamlog.commits.staging import StagedFile
from streamlog.config.log_config import LogConfig
from streamlog.errors import (
    CorruptRecordError,
    FencedError,
    FileMissingError,
    InconsistentTopicIdError,
)
from streamlog.query.checkpoint import BatchSource
from streamlog.query.checkpoint_note import CheckpointNote
from streamlog.store.api import ObjectRange, ObjectStore

__all__ = ["BucketCommits", "LEADER_EPOCH"]

LEADER_EPOCH: Final = 0  # nothing is ever truncated, so an epoch never has to follow

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """The arguments of one call of `commit`."""

    identity: CommitIdentity
    staged: StagedCommit
    times: Mapping[tuple[int, int], int]  # largest timestamp by index of the file and position
    fingerprint: Fingerprint
    note: CheckpointNote | None
    rule: ReplayRule
    on_mismatch: OnMismatch
    planned: Mapping[str, LogConfig]


class BucketCommits:
    """The commits of a root in an object store.

    Args:
        store: The root's objects.
        journal: Its journal.
        clock: The clock.
    """

    def __init__(self, store: ObjectStore, journal: RootJournal, clock: Clock) -> None:
        self._store, self._journal, self._clock = store, journal, clock

    def commit(
        self,
        identity: CommitIdentity,
        staged: Sequence[StagedFile],
        *,
        planned: Mapping[str, LogConfig],
        source: BatchSource | None = None,
        note: CheckpointNote | None = None,
        replay_rule: ReplayRule = ReplayRule.NEXT,
        on_mismatch: str | OnMismatch = OnMismatch.FAIL,
    ) -> CommitOutcome:
        """Commit staged objects atomically and exactly once. Durable on return.

        Args:
            identity: The commit's identity; committing it again is a replay.
            staged: The reports of each task's winning attempt, in any order.
            planned: The settings of the topics by which the tasks encoded.
            source: The input of the commit apart from its rows, if known.
            note: The checkpoint's note of the app's last version.
            replay_rule: Which versions may follow the last one.
            on_mismatch: What to do with a known version that has another fingerprint.

        Returns:
            The offsets of the rows.

        Raises:
            InvalidRequestError: The commit can never succeed (subclasses say why); nothing was
                decided.
            CorruptRecordError: A staged object is damaged; nothing was decided.
            InconsistentTopicIdError: A topic was recreated in between; nothing was decided.
            FencedError: The objects were staged so long ago that maintenance may have deleted
                them; nothing was decided.
            CommitMismatchError: The version is known with another fingerprint, does not follow the
                last one, is forgotten, or the log lacks versions that `note` contains.
            UnknownOutcomeError: The commit may or may not be decided: commit again to find out.
        """
        check_identity(identity)
        gathered = gather(identity, staged)
        request = _Request(
            identity=identity,
            staged=gathered,
            times=_times(staged),
            fingerprint=Fingerprint.of(
                source or BatchSource(None), gathered.rows, gathered.checksum
            ),
            note=note,
            rule=replay_rule,
            on_mismatch=OnMismatch.parse(on_mismatch),
            planned=planned,
        )
        return self._journal.change(lambda state: self._decide(state, request))

    def _decide(
        self, state: RootState, request: _Request
    ) -> tuple[Sequence[Action], CommitOutcome]:
        """Judge a commit by a state, and place its rows in it."""
        identity = request.identity
        ledger = state.apps.get(identity.app) or Ledger.empty(identity.app)
        past = [entry for entry in ledger.entries if entry.version == identity.version]
        verdict, index = judge_commit(
            identity,
            request.fingerprint,
            [entry.fingerprint for entry in past],
            last_version=ledger.standing.last_version,
            note=request.note,
            rule=request.rule,
            on_mismatch=request.on_mismatch,
        )
        if verdict in (Verdict.REPLAY, Verdict.SKIP):
            _logger.info("%s is already committed: %s", identity, verdict.value)
            is_last = past[index] == ledger.entries[-1]
            return [], CommitOutcome(
                identity=identity,
                verdict=verdict,
                revision=past[index].revision,
                parts=ledger.last_parts if is_last else (),
                rows=past[index].fingerprint.rows,
            )
        revision = past[-1].revision + 1 if past else 0
        files = self._check_files(state, request)
        parts = tuple(self._place(state, request, part) for part in request.staged.parts)
        action = Commit(
            identity=identity,
            revision=revision,
            made_ms=self._clock.now_ms(),
            fingerprint=request.fingerprint,
            files=files,
            parts=parts,
        )
        return [action], CommitOutcome(
            identity=identity,
            verdict=verdict,
            revision=revision,
            parts=tuple(
                CommittedRange(part.topic_partition, part.base_offset, part.end_offset - 1)
                for part in parts
            ),
            rows=request.staged.rows,
        )

    def _check_files(self, state: RootState, request: _Request) -> tuple[str, ...]:
        """Return the keys of the staged objects, after checking that none may be deleted."""
        app, unneeded = request.identity.app, {each.key for each in state.garbage}
        keys = tuple(staged_key(app, file.name) for file in request.staged.files)
        for key in keys:
            is_late = (staged_ms(key) or 0) < state.staged_horizon_ms
            if is_late or key in state.uses or key in unneeded:
                raise FencedError(
                    "staged rows can no longer be committed",
                    path=f"{self._store.url}/{key}",
                    got="staged too long ago" if is_late else "rows that are committed already",
                    expected=f"rows staged at {state.staged_horizon_ms} ms or later, once",
                    hint="run the batch again: it is not committed",
                )
        return keys

    def _place(self, state: RootState, request: _Request, part: StagedPart) -> CommitPart:
        """Return a partition's part of a commit, after checking it against the settings."""
        topic = state.topics.get(part.topic_partition.topic)
        now = None if topic is None else topic.topic_id
        if topic is None or now != part.topic_id or part.topic_partition not in state.partitions:
            raise InconsistentTopicIdError(
                f"topic {part.topic_partition.topic} was deleted while rows were written for it",
                path=self._store.url,
                got=f"topic id {part.topic_id}",
                expected=now or "no topic of this name",
                hint="run the batch again",
            )
        config = state.config_of(part.topic_partition.topic)
        if config != request.planned.get(part.topic_partition.topic):
            files = request.staged.files
            reader = _ObjectExtents(self._store, request.identity.app, files)
            check_part(config, part, reader, self._clock.now_ms())
        at = state.partitions[part.topic_partition]
        return CommitPart(
            topic_partition=part.topic_partition,
            topic_id=part.topic_id,
            base_offset=at.end_offset,
            # Epochs must not go back, and records that were copied here have theirs.
            leader_epoch=at.epochs[-1][0] if at.epochs else LEADER_EPOCH,
            extents=tuple(
                BucketExtent(*extent, request.times[extent.file, extent.position])
                for extent in part.extents
            ),
        )


class _ObjectExtents(CheckedExtents):
    """Reads extents of the staged objects of one commit."""

    def __init__(self, store: ObjectStore, app: str, files: tuple[DecidedFile, ...]) -> None:
        super().__init__()
        self._store, self._app, self._files = store, app, files

    def path(self, extent: DecidedExtent) -> str:
        """Return the URL of an extent's object."""
        return f"{self._store.url}/{self._key(extent)}"

    def _key(self, extent: DecidedExtent) -> str:
        return staged_key(self._app, self._files[extent.file].name)

    def read_bytes(self, extent: DecidedExtent) -> NDArray[np.uint8]:
        """Return the bytes of an extent, unchecked."""
        buffer = np.empty(extent.size, np.uint8)
        try:
            self._store.read_into(
                [ObjectRange(self._key(extent), extent.position, extent.size)], buffer
            )
        except FileMissingError as error:
            raise CorruptRecordError(
                "staged object is missing",
                path=self.path(extent),
                hint="run the batch again: it is not committed",
            ) from error
        return buffer


def _times(staged: Sequence[StagedFile]) -> dict[tuple[int, int], int]:
    """Return the largest timestamp of each extent, by the numbers that `gather` gives the files."""
    files = [file for file in sorted(staged, key=lambda each: each.task) if file.extents]
    return {
        (number, extent.position): extent.max_timestamp
        for number, file in enumerate(files)
        for extent in file.extents
    }
