"""The circumstances of one run, drawn from its seed: swarm testing, each run has its own mix."""

from random import Random
from typing import Any, NamedTuple

from streamlog.replication.isr import ReplicationSettings
from streamlog.replication.truncation import TruncationRule


class Profile(NamedTuple):
    """One run's settings; times in milliseconds of simulated time.

    Attributes:
        nodes: The number of nodes.
        replicas: How many of them hold the partition at first, and in each new topic.
        settings: Of the partition.
        may_elect_uncleanly: `unclean.leader.election.enable`. Faults may then exceed what the
            protocol survives, and losses are counted.
        syncs: Whether each append is synced (`flush.messages=1`).
        loss: The probability that a message is lost.
        duplication: The probability that it arrives twice.
        delay: The longest usual delay.
        slow: The probability of a delay eight times as long.
        crash: The probability that a node dies in the middle of a step.
        interrupt: The probability that a leader dies while only one other root has its change.
        faults: How often each kind of fault comes, relative to the others.
        fault_interval: The mean time between faults.
        append_interval: The mean time between appends.
        fetch_limit: The most records in an answer.
        duration: The time with faults.
    """

    nodes: int
    replicas: int
    settings: ReplicationSettings
    may_elect_uncleanly: bool
    syncs: bool
    loss: float
    duplication: float
    delay: int
    slow: float
    crash: float
    interrupt: float
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


FAULTS = (
    "kill",
    "power cut",
    "clean restart",
    "bounce leader",
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
    "reassign",
    "create again",
    "use an old format",
)
RARE_FAULTS = ("reassign", "create again", "use an old format")


THEMES = {
    "mixed": {},
    "reassignments": {"reassign": 16, "prefer": 2, "kill": 2, "power cut": 3},
    "topics": {"create again": 5, "isolate": 3, "cut link": 3, "heal links": 4, "kill": 3},
    "resumptions": {
        **dict.fromkeys(FAULTS, 0),
        "bounce leader": 1,
        "isolate": 4,
        "heal links": 6,
    },
    "joins": {
        **dict.fromkeys(FAULTS, 0),
        "power cut": 8,
        "isolate": 6,
        "heal links": 10,
    },
    "formats": {"use an old format": 3, "kill": 3, "suspect leader": 3},
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


SHARES = {
    "mixed": 5,
    "elections": 3,
    "restarts": 3,
    "reassignments": 2,
    "topics": 1,
    "resumptions": 1,
    "joins": 1,
    "formats": 1,
}


# What a theme does not leave to chance: the bugs that it is for need it.
CIRCUMSTANCES: dict[str, dict[str, Any]] = {
    "resumptions": {
        "nodes": 3,
        "replicas": 3,
        "may_elect_uncleanly": False,
        "loss": 0.0,
        "crash": 0.0,
        "append_interval": 4,
        "fetch_limit": 1,
        "interrupt": 0.7,
    },
}


def drawn(
    random: Random, rule: TruncationRule = TruncationRule.KIP_320, theme: str | None = None
) -> Profile:
    """Return the profile of a run, of any theme by default."""
    drawn_theme = random.choices(tuple(SHARES), weights=tuple(SHARES.values()))[0]
    theme = theme or drawn_theme
    faults = {each: random.choice((0, 1, 1, 3)) for each in FAULTS}
    faults |= {each: random.choice((0, 0, 0, 1)) for each in RARE_FAULTS} | THEMES[theme]
    is_mixed = theme not in ("elections", "restarts", "resumptions", "joins")
    nodes = random.choice((3, 3, 3, 3, 3, 3, 3, 4, 5, 2))
    profile = Profile(
        nodes=nodes,
        replicas=max(2, nodes - random.choice((0, 0, 0, 1, 2))),
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
        interrupt=random.choice((0.0, 0.0, 0.05)),
        faults=faults,
        fault_interval=random.choice((10, 20, 40) if is_mixed else (6, 12)),
        append_interval=random.choice((4, 8, 16)),
        fetch_limit=random.choice((1, 3, 100)),
        duration=random.choice((200, 300, 400)),
    )
    return profile._replace(**CIRCUMSTANCES.get(theme, {}))
