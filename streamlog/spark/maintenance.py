"""Maintenance between triggers: a listener that keeps a root in bounds while queries run.

Spark tells the listener of each trigger that has committed; it then starts a thread that does
what is due, for a while, unless one is still at it. Nothing of it ever raises into a query.
"""

import os
import threading
from typing import TYPE_CHECKING, Final

from pyspark.sql.streaming import StreamingQueryListener
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
)

from streamlog.commits.retirement import BackgroundChores
from streamlog.maintenance.runner import Maintenance, MaintenanceReport

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["BUDGET_MS", "MaintainedRoot", "maintain"]

BUDGET_MS: Final = 500.0


def maintain(
    spark: "SparkSession", root: str | os.PathLike[str], *, budget_ms: float = BUDGET_MS
) -> "MaintainedRoot":
    """Keep a root in bounds while queries of a session run: after each trigger, what is due.

    Args:
        spark: The session; every query of it counts, whatever it reads or writes.
        root: The log root.
        budget_ms: After so long no other partition is begun; the next trigger goes on there.

    Returns:
        A handle that tells what was done, and stops it.

    Raises:
        UnknownTopicError: There is no such root.
        InvalidRequestError: It is not one of streamlog's.
    """
    maintained = MaintainedRoot(spark, Maintenance(root), budget_ms)
    spark.streams.addListener(maintained.listener)
    return maintained


class MaintainedRoot:
    """A root that is maintained between triggers; see `maintain`. A context manager.

    Args:
        spark: The session.
        maintenance: Does the work.
        budget_ms: For how long at a time.

    Attributes:
        listener: What Spark calls.
        reports: What was done, without the looks that found nothing to do.
    """

    def __init__(self, spark: "SparkSession", maintenance: Maintenance, budget_ms: float) -> None:
        self._spark, self._maintenance, self._budget_ms = spark, maintenance, budget_ms
        self._chores = BackgroundChores()
        self._guard = threading.Lock()
        self._is_stopped = False
        self.listener = _AfterTriggers(self)
        self.reports: list[MaintenanceReport] = []

    def begin(self) -> None:
        """Start doing what is due, unless that is being done."""
        with self._guard:
            if not self._is_stopped:
                self._chores(self._do_due)

    def _do_due(self) -> None:
        report = self._maintenance.run_due(budget_ms=self._budget_ms)
        if report.deeds or report.errors:
            self.reports.append(report)

    def stop(self) -> None:
        """Stop, when what is being done is done; twice does no harm."""
        with self._guard:
            if self._is_stopped:
                return
            self._is_stopped = True
        self._spark.streams.removeListener(self.listener)
        self._chores.wait()
        self._maintenance.close()

    def __enter__(self) -> "MaintainedRoot":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class _AfterTriggers(StreamingQueryListener):
    """Begins with maintenance after each trigger, and after a query has ended."""

    def __init__(self, maintained: MaintainedRoot) -> None:
        self._maintained = maintained

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing: there is no trigger yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Begin: a trigger has committed."""
        self._maintained.begin()

    def onQueryIdle(self, event: object) -> None:  # noqa: N802 - Spark's name
        """Begin: what is due by the clock does not wait for rows."""
        self._maintained.begin()

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Begin: the last trigger may have gone untold."""
        self._maintained.begin()
