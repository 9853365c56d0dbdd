"""Where in time offsets lie: points from an index, and what is read off between them."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlog.overview.model import RateWindow

__all__ = ["Timeline", "offsets_per_step"]


class Timeline(NamedTuple):
    """Points of a log, both columns ascending.

    Attributes:
        ms: Times, in ms since 1970.
        offsets: At each time, the offset after the last record with at most this timestamp.
    """

    ms: NDArray[np.int64]
    offsets: NDArray[np.int64]

    @classmethod
    def of(cls, ms: NDArray[np.int64], offsets: NDArray[np.int64]) -> "Timeline":
        """Return the timeline of points by offset; times that go back are raised to the latest.

        Points without a timestamp (negative) are left out.
        """
        is_dated = ms >= 0
        return cls(np.maximum.accumulate(ms[is_dated]), offsets[is_dated])


def offsets_per_step(timelines: Iterable[Timeline], window: RateWindow) -> tuple[int, ...]:
    """Return how many offsets were written in each step of a window.

    Between two points offsets are spread evenly.
    """
    edges = window.start_ms + window.step_ms * np.arange(window.count + 1) - 0.5
    counts = np.zeros(window.count, np.int64)
    for each in timelines:
        if len(each.ms):
            reached = np.rint(np.interp(edges, each.ms, each.offsets)).astype(np.int64)
            counts += np.diff(reached)
    return tuple(counts.tolist())
