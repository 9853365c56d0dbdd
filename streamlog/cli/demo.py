"""`streamlog demo`: kill writers, count rows, print the outcome."""

import os
import shlex
from importlib.util import find_spec
from pathlib import Path
from random import Random

import click

from streamlog.cli.output import Column, Findings, Kind, Output, remark
from streamlog.cli.verb import Settings
from streamlog.clock import SystemClock
from streamlog.demo.run import Demo, DemoReport
from streamlog.errors import DataLossError, StreamLogError
from streamlog.health.findings import as_error

__all__ = ["demo"]

_COLUMNS = (
    Column("topic", "TOPIC"),
    Column("rows", "ROWS", Kind.NUMBER),
    Column("lost", "LOST", Kind.NUMBER),
    Column("duplicates", "DUPLICATES", Kind.NUMBER),
    Column("partitions", "ROWS BY PARTITION"),
)


def demo(settings: Settings, *, spark: bool, rows: int, seed: int | None) -> None:
    """Run it in a new log root, and print what each topic holds."""
    if spark and find_spec("pyspark") is None:
        raise click.UsageError("--spark needs pyspark: install 'pyspark-streamlog[spark]'")
    root = _root(settings)
    random = Random(seed)
    run = Demo(root, rows=rows, random=random, on_step=lambda step: remark(settings, f"{step} …"))
    report = run.run(with_spark=spark)
    Output(settings).rows(
        [
            {
                "topic": topic,
                "rows": count.rows,
                "lost": count.lost,
                "duplicates": count.duplicates,
                "partitions": " ".join(map(str, count.partitions)),
            }
            for topic, count in report.topics.items()
        ],
        _COLUMNS,
    )
    remark(settings, _summary(report))
    errors: list[StreamLogError] = [as_error(finding) for finding in report.findings]
    if not all(count.is_exact for count in report.topics.values()):
        errors.append(DataLossError("rows are lost or duplicated", path=str(root)))
    if errors:
        raise Findings(errors)
    for line in _next_steps(root):
        remark(settings, line)


def _root(settings: Settings) -> Path:
    """Return the directory to make the root in.

    Raises:
        UsageError: It exists.
    """
    if not settings.path:
        temporary = Path(os.environ.get("TMPDIR", "/tmp"))
        return temporary / f"streamlog-demo-{os.getpid()}-{SystemClock().now_ms()}"
    root = Path(settings.path)
    if root.exists():
        raise click.UsageError(f"the demo makes a log root of its own, but {root} exists")
    return root


def _summary(report: DemoReport) -> str:
    return (
        f"processes killed: {report.kills}; commits repeated and recognized: {report.repeated}; "
        f"findings of verify: {len(report.findings)}; {report.seconds:.0f} s"
    )


def _next_steps(root: Path) -> tuple[str, ...]:
    path = shlex.quote(str(root))
    return (
        "look at it:",
        f"  streamlog --path {path} topics describe orders",
        f"  streamlog --path {path} cat orders --count 3",
        f"  streamlog dump {path}/orders-0/*.log",
    )
