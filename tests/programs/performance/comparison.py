"""The result of a benchmark: our figure and a peer's from the same run."""

from collections.abc import Callable
from statistics import median
from typing import NamedTuple


class Comparison(NamedTuple):
    """Two figures.

    Attributes:
        bench: The name, such as `source.noop`.
        ours: Our figure.
        peer: The peer's figure.
        peer_name: What was measured as the peer.
        unit: The unit of both.
        higher_is_better: Whether higher figures are better.
        goal: The ratio to reach, or not to exceed if lower is better.
    """

    bench: str
    ours: float
    peer: float
    peer_name: str
    unit: str
    higher_is_better: bool = True
    goal: float | None = None

    @property
    def ratio(self) -> float:
        """Our figure divided by the peer's."""
        return self.ours / self.peer

    @property
    def is_reached(self) -> bool:
        """Whether there is no goal or it is met."""
        if self.goal is None:
            return True
        return self.ratio >= self.goal if self.higher_is_better else self.ratio <= self.goal

    def to_json(self) -> dict[str, object]:
        """Return one line of `--json`."""
        return {
            "bench": self.bench,
            "ours": self.ours,
            "peer": self.peer,
            "peer_name": self.peer_name,
            "unit": self.unit,
            "ratio": self.ratio,
            "higher_is_better": self.higher_is_better,
        }


def interleaved(
    ours: Callable[[], float], peer: Callable[[], float], *, rounds: int
) -> tuple[float, float]:
    """Measure both in turn, after one warm-up round; return the two medians."""
    pairs = [(ours(), peer()) for _ in range(rounds + 1)][1:]
    return median(pair[0] for pair in pairs), median(pair[1] for pair in pairs)
