"""The circumstances of one run, drawn from its seed: swarm testing, each run has its own mix."""

from random import Random
from typing import NamedTuple

from streamlog.replication.isr import ReplicationSettings
from streamlog.replication.truncation import TruncationRule


class Profile(NamedTuple):
    """One run's settings; times in milliseconds of simulated time.

    Attributes:
        nodes: The number of replicas.
        settings: Of the partition.
        may_elect_uncleanly: `unclean.leader.election.enable`. Faults may then exceed what the
            protocol survives, and losses are counted.
        syncs: Whether each append is synced (`flush.messages=1`).
        loss: The probability that a message is lost.
        duplication: The probability that it arrives twice.
        delay: The longest usual delay.
        slow: The probability of a delay eight times as long.
        crash: The probability that a node dies in the middle of a step.
        faults: How often each kind of fault comes, relative to the others.
        fault_interval: The mean time between faults.
        append_interval: The mean time between appends.
        fetch_limit: The most records in an answer.
        duration: The time with faults.
    """

    nodes: int
    settings: ReplicationSettings
    may_elect_uncleanly: bool
    syncs: bool
    loss: float
    duplication: float
    delay: int
    slow: float
    crash: float
    faults: dict[str, int]
    fault_interval: int
    append_interval: int
    fetch_limit: int
    duration: int
    tick: int = 8
    timeout: int = 16
    fetch_wait: int = 12
    patience: int = 60

    @property
    def suspicion(self) -> int:
        """A leader that does not answer for so long is taken for dead."""
        return 20 + 4 * self.delay * self.nodes

    @property
    def min_isr(self) -> int:
        """The setting, at most the number of replicas."""
        return min(self.settings.min_insync_replicas, self.nodes)


FAULTS = (
    "kill",
    "power cut",
    "clean restart",
    "isolate",
    "cut link",
    "heal links",
    "replace disk",
    "restore backup",
    "back up",
    "suspect leader",
    "prefer",
    "raise epoch",
    "delete records",
    "checkpoint",
    "flush",
)


THEMES = {
    "mixed": {},
    "elections": {"suspect leader": 6, "prefer": 6, "raise epoch": 6, "kill": 2, "cut link": 2},
    "restarts": {
        **dict.fromkeys(FAULTS, 0),
        "kill": 8,
        "power cut": 6,
        "isolate": 2,
        "cut link": 4,
        "heal links": 6,
        "checkpoint": 1,
        "suspect leader": 2,
    },
}


def drawn(
    random: Random, rule: TruncationRule = TruncationRule.KIP_320, theme: str | None = None
) -> Profile:
    """Return the profile of a run, of any theme by default."""
    drawn_theme = random.choice(("mixed", "mixed", "elections", "restarts"))
    theme = theme or drawn_theme
    faults = {each: random.choice((0, 1, 1, 3)) for each in FAULTS} | THEMES[theme]
    is_mixed = theme == "mixed"
    return Profile(
        nodes=random.choice((3, 3, 3, 3, 3, 3, 3, 3, 5, 2)),
        settings=ReplicationSettings(
            min_insync_replicas=random.choice((1, 2, 2, 2, 2, 3)),
            replica_lag_time_max_ms=random.choice((25, 40, 80) if is_mixed else (15, 25, 40)),
            replica_fetch_wait_max_ms=12,
            rule=rule,
        ),
        may_elect_uncleanly=random.random() < 0.15,
        syncs=random.random() < 0.5,
        loss=random.choice((0.0, 0.0, 0.02, 0.1, 0.2)),
        duplication=random.choice((0.0, 0.0, 0.05)),
        delay=random.choice((1, 3, 6)),
        slow=random.choice((0.0, 0.02, 0.1)),
        crash=random.choice((0.0, 0.002, 0.01)),
        faults=faults,
        fault_interval=random.choice((10, 20, 40) if is_mixed else (6, 12)),
        append_interval=random.choice((4, 8, 16)),
        fetch_limit=random.choice((1, 3, 100)),
        duration=random.choice((200, 300, 400)),
    )
