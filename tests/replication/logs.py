"""A replica's log as a list of (offset, message, epoch), with what the protocol reads of it."""

from dataclasses import dataclass, field

from streamlog.partition.epochs import EpochEntry, LeaderEpochCache
from streamlog.replication.follower import FollowerStep
from streamlog.replication.isr import ReplicationSettings
from streamlog.replication.leader import Leader
from streamlog.replication.partition_state import PartitionState

TOPIC_ID = "A" * 22


@dataclass
class Log:
    """Records without gaps from `log_start_offset` on."""

    records: list[tuple[str, int]] = field(default_factory=list)  # message, epoch
    log_start_offset: int = 0
    epochs: LeaderEpochCache = field(default_factory=LeaderEpochCache)

    @classmethod
    def of(cls, *records: str, start: int = 0) -> "Log":
        """Make a log of texts such as "m1@0"."""
        log = cls(log_start_offset=start)
        for record in records:
            message, _, epoch = record.partition("@")
            log.append(message, int(epoch))
        return log

    @classmethod
    def ending_at(cls, end: int, *epochs: tuple[int, int], start: int = 0) -> "Log":
        """Make a log of `end` records with these epochs and their start offsets."""
        log = cls(log_start_offset=start)
        log.epochs = LeaderEpochCache(tuple(EpochEntry(*each) for each in epochs))
        for offset in range(start, end):
            epoch = log.epochs.epoch_for_offset(offset)
            log.records.append((f"m{offset}", -1 if epoch is None else epoch))
        return log

    @property
    def log_end_offset(self) -> int:
        return self.log_start_offset + len(self.records)

    def append(self, message: str, epoch: int) -> None:
        latest = self.epochs.latest_epoch
        if latest is None or epoch > latest:
            self.epochs.assign(epoch, self.log_end_offset)
        self.records.append((message, epoch))

    def carry_out(self, step: FollowerStep, leader: "Log") -> None:
        """Change the log as a follower's step says, with records of the leader."""
        if step.restart_at is not None:
            self.records.clear()
            self.epochs.clear()
            self.log_start_offset = step.restart_at
        if step.truncate_to is not None:
            del self.records[max(step.truncate_to - self.log_start_offset, 0) :]
            self.epochs.truncate_from_end(step.truncate_to)
        if step.append_to is not None:
            first = self.log_end_offset - leader.log_start_offset
            for message, epoch in leader.records[first : step.append_to - leader.log_start_offset]:
                self.append(message, epoch)
        if step.log_start_offset is not None and step.log_start_offset > self.log_start_offset:
            del self.records[: step.log_start_offset - self.log_start_offset]
            self.log_start_offset = step.log_start_offset
            self.epochs.truncate_from_start(step.log_start_offset)

    def texts(self) -> list[str]:
        return [f"{message}@{epoch}" for message, epoch in self.records]

    def epoch_entries(self) -> list[tuple[int, int]]:
        return [tuple(entry) for entry in self.epochs.entries]


def state_of(
    isr: tuple[int, ...],
    *,
    leader: int = 0,
    epoch: int = 0,
    replicas: tuple[int, ...] = (0, 1, 2),
    version: int = 0,
) -> PartitionState:
    """Return a partition state with these members."""
    return PartitionState(
        topic_id=TOPIC_ID,
        replicas=replicas,
        isr=isr,
        leader=leader,
        leader_epoch=epoch,
        partition_epoch=version,
    )


def leading(
    log: Log,
    isr: tuple[int, ...] = (0, 1, 2),
    *,
    epoch: int = 0,
    high_watermark: int = 0,
    settings: ReplicationSettings | None = None,
    now_ms: int = 0,
) -> Leader:
    """Return node 0 leading replicas 0, 1 and 2."""
    return Leader(
        0,
        state_of(isr, epoch=epoch),
        log,
        settings or ReplicationSettings(),
        high_watermark=high_watermark,
        now_ms=now_ms,
    )
