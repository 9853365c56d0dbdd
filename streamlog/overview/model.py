"""The overview of a root: plain values, without I/O, that become JSON or a page."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Any, Final

from streamlog.config.server_config import ConfigEntry
from streamlog.root.deeds import Deed

__all__ = [
    "AppOverview",
    "CompactionOverview",
    "GroupOverview",
    "GroupPosition",
    "HealthRemark",
    "PartitionOverview",
    "RateWindow",
    "ReaderOverview",
    "ReaderPosition",
    "RootKind",
    "RootOverview",
    "SegmentOverview",
    "TopicOverview",
    "as_json",
]


class RootKind(Enum):
    """What lies at a path."""

    ROOT = "log root"
    BROKER = "broker's log.dir"
    PARTITION = "partition"
    BUCKET = "log root in an object store"


@dataclass(frozen=True, slots=True, kw_only=True)
class RateWindow:
    """The times that records are counted in.

    Attributes:
        start_ms: Start of the first one, in ms since 1970.
        step_ms: The length of each, in ms.
        count: How many there are.
    """

    start_ms: int
    step_ms: int
    count: int

    @classmethod
    def ending(cls, end_ms: int, *, step_ms: int, count: int) -> "RateWindow":
        """Return the window whose last step contains `end_ms`."""
        last = end_ms - end_ms % step_ms
        return cls(start_ms=last - (count - 1) * step_ms, step_ms=step_ms, count=count)

    @property
    def end_ms(self) -> int:
        """The end of the last step."""
        return self.start_ms + self.count * self.step_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentOverview:
    """One segment.

    Attributes:
        base_offset: Its first offset.
        end_offset: The offset after its last one.
        size_bytes: Bytes of its log file.
        first_ms: The largest timestamp of its first batch; None if unknown.
        last_ms: Its largest timestamp; None if no record has one.
        is_active: Whether records are appended to it.
        codec: The codec of its first batch, such as `zstd`; None if unknown.
        is_due: Whether the next maintenance deletes it.
        leaves_ms: When `retention.ms` deletes it; None: never.
        leaves_after_bytes: After how many appended bytes `retention.bytes` deletes it; None: never.
        held_by: The recorded readers that need it.
        problem: Why the facts are incomplete; None if they are not.
    """

    base_offset: int
    end_offset: int
    size_bytes: int
    first_ms: int | None
    last_ms: int | None
    is_active: bool
    codec: str | None
    is_due: bool
    leaves_ms: int | None
    leaves_after_bytes: int | None
    held_by: tuple[str, ...]
    problem: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionOverview:
    """How far a partition is compacted.

    Attributes:
        first_dirty_offset: The first offset that no round has cleaned.
        end_offset: Where the next round ends.
        clean_bytes: Bytes before the dirty section.
        dirty_bytes: Bytes of the section that can be cleaned.
        dirty_ratio: Share of the dirty section, 0 to 1.
        is_due: Whether maintenance cleans it next time.
        reason: Why, or why not.
    """

    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    dirty_ratio: float
    is_due: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOverview:
    """One partition.

    Attributes:
        partition: Its number.
        path: Its directory, or its URL.
        leader_epoch: The latest epoch, -1 if unknown.
        log_start_offset: The first readable offset.
        high_watermark: The end of committed records.
        log_end_offset: The offset of the next record.
        size_bytes: Bytes of all segments.
        segments: Its segments, oldest first.
        rate: Number of offsets written in each step of the window.
        compaction: How far it is compacted; None unless its topic is.
        problem: Why it cannot be read, or what is wrong at its end; None if nothing is.
    """

    partition: int
    path: str
    leader_epoch: int = -1
    log_start_offset: int = 0
    high_watermark: int = 0
    log_end_offset: int = 0
    size_bytes: int = 0
    segments: tuple[SegmentOverview, ...] = ()
    rate: tuple[int, ...] = ()
    compaction: CompactionOverview | None = None
    problem: str | None = None

    @property
    def records(self) -> int:
        """Its offsets: at least as many as records, see `TopicOverview.has_gaps`."""
        return self.log_end_offset - self.log_start_offset

    @property
    def oldest_ms(self) -> int | None:
        """The earliest known timestamp."""
        return min((each.first_ms for each in self.segments if each.first_ms), default=None)

    @property
    def newest_ms(self) -> int | None:
        """The largest timestamp."""
        return max((each.last_ms for each in self.segments if each.last_ms), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOverview:
    """One topic.

    Attributes:
        name: Its name.
        topic_id: Its id, None if it has none.
        is_internal: Whether Kafka keeps its own state in it.
        cleanup_policy: What happens to old records.
        retention_ms: How long records are kept, -1 without a limit.
        retention_bytes: The size a partition may have, -1 without a limit.
        settings: The settings that differ from the defaults.
        partitions: Its partitions by number.
    """

    name: str
    topic_id: str | None
    is_internal: bool
    cleanup_policy: tuple[str, ...]
    retention_ms: int
    retention_bytes: int
    settings: tuple[ConfigEntry, ...]
    partitions: tuple[PartitionOverview, ...]

    @property
    def records(self) -> int:
        """Offsets of all partitions."""
        return sum(each.records for each in self.partitions)

    @property
    def size_bytes(self) -> int:
        """Bytes of all partitions."""
        return sum(each.size_bytes for each in self.partitions)

    @property
    def has_gaps(self) -> bool:
        """Whether compaction leaves offsets without records."""
        return "compact" in self.cleanup_policy

    @property
    def skew(self) -> float | None:
        """Bytes of the largest partition by those of the average one; None without bytes."""
        sizes = [each.size_bytes for each in self.partitions]
        return max(sizes) * len(sizes) / sum(sizes) if sum(sizes) else None

    @property
    def rate(self) -> tuple[int, ...]:
        """Number of offsets written in each step of the window."""
        rates = [each.rate for each in self.partitions if each.rate]
        return tuple(map(sum, zip(*rates, strict=True)))

    @property
    def oldest_ms(self) -> int | None:
        """The earliest known timestamp."""
        return min((each.oldest_ms for each in self.partitions if each.oldest_ms), default=None)

    @property
    def newest_ms(self) -> int | None:
        """The largest timestamp."""
        return max((each.newest_ms for each in self.partitions if each.newest_ms), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderPosition:
    """A reader in one partition.

    Attributes:
        topic: The topic.
        partition: The partition.
        offset: The next offset to read; None before its first one.
        end_offset: The high watermark.
        lag: Offsets from there to the high watermark.
        behind_ms: The newest timestamp minus that at its position, as the index knows it.
        held_bytes: Bytes of sealed segments that are kept for it.
    """

    topic: str
    partition: int
    offset: int | None
    end_offset: int
    lag: int
    behind_ms: int | None
    held_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderOverview:
    """One recorded reader.

    Attributes:
        name: Its name.
        checkpoint: The directory its position is read from; None if it writes it itself.
        committed_ms: Time of its position.
        is_silent: Whether it is so old that nothing is kept for it.
        problem: Why its checkpoint cannot be read; None if it can.
        positions: Where it stands.
    """

    name: str
    checkpoint: str | None
    committed_ms: int
    is_silent: bool
    problem: str | None
    positions: tuple[ReaderPosition, ...]

    @property
    def lag(self) -> int:
        """Offsets in all partitions that it has not finished."""
        return sum(each.lag for each in self.positions)

    @property
    def behind_ms(self) -> int | None:
        """How far it is behind where it is furthest behind."""
        known = [each.behind_ms for each in self.positions if each.behind_ms is not None]
        return max(known, default=None)

    @property
    def held_bytes(self) -> int:
        """Bytes of sealed segments that are kept for it."""
        return sum(each.held_bytes for each in self.positions)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPosition:
    """What a consumer group has committed for one partition.

    Attributes:
        topic: The topic.
        partition: The partition.
        offset: The committed offset: the next one that the group reads.
        end_offset: The high watermark; None if the partition is not here.
        lag: Offsets from there to the high watermark; None if the partition is not here.
        committed_ms: Time of the commit.
    """

    topic: str
    partition: int
    offset: int
    end_offset: int | None
    lag: int | None
    committed_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOverview:
    """One consumer group of Kafka's clients.

    Attributes:
        name: Its id.
        positions: What it has committed, by topic and partition.
    """

    name: str
    positions: tuple[GroupPosition, ...]

    @property
    def lag(self) -> int:
        """Offsets that it has not finished, in the partitions that are here."""
        return sum(each.lag or 0 for each in self.positions)


@dataclass(frozen=True, slots=True, kw_only=True)
class AppOverview:
    """A writer of exactly-once commits.

    Attributes:
        app: Its name.
        commits: How many commits it has decided.
        last_version: The version of the last one (for Spark: the batch), None if unknown.
        last_ms: When the last one was decided or retired; None if unknown.
        pending: Decided commits that are not retired yet.
    """

    app: str
    commits: int
    last_version: int | None
    last_ms: int | None
    pending: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthRemark:
    """Something that is wrong, or worth knowing.

    Attributes:
        severity: `damage`, `repairable`, `degraded` or `note`.
        where: The file, partition or reader.
        what: What it is.
        cure: A command or an action; None if nothing is to be done.
    """

    severity: str
    where: str
    what: str
    cure: str | None = None


_SEVERITIES: Final = ("damage", "degraded", "repairable", "note")


@dataclass(frozen=True, slots=True, kw_only=True)
class RootOverview:
    """A root at one moment.

    Attributes:
        path: Its path or URL.
        kind: What lies there.
        taken_ms: The moment.
        node: The `node.id` and `cluster.id` of a broker's directory.
        window: The times of all rates.
        topics: Its topics by name.
        readers: The recorded readers by name.
        apps: The writers of exactly-once commits by name.
        settings: Settings of the root that differ from the defaults.
        health: What is wrong, worst first.
        deeds: The last changes that maintenance made, newest first.
        is_verified: Whether every byte was checked.
        has_settings: Whether the settings in force are known; a broker keeps some elsewhere.
        groups: The consumer groups of Kafka's clients by name.
    """

    path: str
    kind: RootKind
    taken_ms: int
    node: Mapping[str, str]
    window: RateWindow
    topics: tuple[TopicOverview, ...]
    readers: tuple[ReaderOverview, ...]
    apps: tuple[AppOverview, ...]
    settings: tuple[ConfigEntry, ...]
    health: tuple[HealthRemark, ...]
    deeds: tuple[Deed, ...]
    is_verified: bool
    has_settings: bool
    groups: tuple[GroupOverview, ...] = ()

    @property
    def size_bytes(self) -> int:
        """Bytes of all topics."""
        return sum(each.size_bytes for each in self.topics)

    @property
    def records(self) -> int:
        """Offsets of all topics."""
        return sum(each.records for each in self.topics)

    @property
    def verdict(self) -> str | None:
        """The worst severity, None if there is nothing to say."""
        found = {each.severity for each in self.health}
        return next((each for each in _SEVERITIES if each in found), None)


def as_json(value: Any) -> Any:
    """Return a value of the model as JSON: names in camel case, with the computed totals."""
    if isinstance(value, Deed):
        return value.to_json()
    if isinstance(value, ConfigEntry):
        return {"name": value.key, "value": value.value, "source": value.source.value}
    if is_dataclass(value) and not isinstance(value, type):
        names = [each.name for each in fields(value)] + [
            name for name, each in vars(type(value)).items() if isinstance(each, property)
        ]
        return {_camel(name): as_json(getattr(value, name)) for name in names}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {key: as_json(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [as_json(each) for each in value]
    return value


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)
