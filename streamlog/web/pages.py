"""Pages as text: the templates, and the words and numbers in them.

Every value that comes from a log is escaped: the environment escapes whatever a template inserts.
"""

import shlex
from collections.abc import Callable, Iterable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from streamlog.overview.model import RootOverview, SegmentOverview, TopicOverview
from streamlog.web.charts import fate_of, rate_bars, segment_rows, total_rate
from streamlog.web.values import one_line
from streamlog.words import (
    age_text,
    counted,
    duration_text,
    human_size,
    number_text,
    time_text,
)

__all__ = ["render", "report_page"]

_LISTED: Final = 200  # segments of a topic in a table at most
_LISTED_IN_ALL: Final = 4000
_STEPS: Final = {60_000: "minute", 3_600_000: "hour"}


def report_page(root: RootOverview) -> str:
    """Return the overview of a root as one page that needs no network and no scripts."""
    return render("report.html", root=root, is_live=False, address=lambda name: f"#{_anchor(name)}")


def render(template: str, **values: Any) -> str:
    """Return a page.

    Args:
        template: The name of a template.
        values: What it shows.
    """
    return _environment().get_template(template).render(**values)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("streamlog.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Callable[..., Any]] = {
        "age": age_text,
        "anchor": _anchor,
        "counted": counted,
        "duration": duration_text,
        "known": lambda values: [each for each in values if each is not None],
        "lag_of": _lag_of,
        "listed_segments": _listed_segments,
        "max_of": lambda values, default=0: max(values, default=default),
        "min_of": lambda values, default=0: min(values, default=default),
        "number": number_text,
        "one_line": one_line,
        "quoted": shlex.quote,
        "segment_count": lambda topic: sum(len(each.segments) for each in topic.partitions),
        "setting": _setting_text,
        "size": human_size,
        "stamp": _stamp,
        "step": lambda ms: _STEPS.get(ms) or duration_text(ms),
        "time": time_text,
    }
    environment.filters.update(filters)
    environment.globals.update(
        fate_of=fate_of,
        rate_bars=rate_bars,
        segment_rows=segment_rows,
        total_rate=total_rate,
        version=_version(),
    )
    return environment


def _version() -> str:
    try:
        return version("pyspark-streamlog")
    except PackageNotFoundError:
        return "(not installed)"


def _stamp(ms: int) -> str:
    """Return the timestamp of a record with its milliseconds."""
    return "-" if ms < 0 else f"{time_text(ms)}.{ms % 1000:03d}"


def _anchor(topic: str) -> str:
    return f"topic-{topic}"


def _lag_of(topic: str, root: RootOverview) -> str:
    """Return the lag of the reader of a topic that is furthest behind; silent ones do not count."""
    lags = [
        sum(each.lag for each in reader.positions if each.topic == topic)
        for reader in root.readers
        if not reader.is_silent and any(each.topic == topic for each in reader.positions)
    ]
    return number_text(max(lags)) if lags else "-"


def _listed_segments(topic: TopicOverview, root: RootOverview) -> list[tuple[int, SegmentOverview]]:
    """Return the first segments of a topic with their partitions, oldest first."""
    every: Iterable[tuple[int, SegmentOverview]] = (
        (partition.partition, segment)
        for partition in topic.partitions
        for segment in partition.segments
    )
    most = max(5, min(_LISTED, _LISTED_IN_ALL // len(root.topics)))
    return list(islice(every, most))


def _setting_text(value: str, key: str) -> str:
    """Return a setting, followed by its meaning if it is a long number of a known unit."""
    if not value.isdigit() or int(value) < 1000 or int(value) >= 1 << 53:
        return value
    if key.endswith(".ms"):
        return f"{value} ({duration_text(int(value))})"
    return f"{value} ({human_size(int(value))})" if key.endswith(".bytes") else value
