"""Maintenance between triggers: a listener that maintains a root while queries run.

Spark calls the listener after each committed trigger. It then starts a thread that does due work
within a time budget, unless the previous one still runs. Errors never reach a query.
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
from streamlog.maintenance.bucket_runner import BucketMaintenance, maintenance_of
from streamlog.maintenance.runner import Maintenance, MaintenanceReport

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["BUDGET_MS", "MaintainedRoot", "maintain"]

BUDGET_MS: Final = 500.0


def maintain(
    spark: "SparkSession", root: str | os.PathLike[str], *, budget_ms: float = BUDGET_MS
) -> "MaintainedRoot":
    """Maintain a root while queries of a session run, after each trigger.

    Args:
        spark: The session; all of its queries count, whatever they read or write.
        root: The log root: a directory, or the URL of an object store.
        budget_ms: After this time no further partition is started; the next trigger continues.

    Returns:
        A handle with reports, which also stops the maintenance.

    Raises:
        UnknownTopicError: The root does not exist.
        InvalidRequestError: It is not a streamlog root.
    """
    maintained = MaintainedRoot(spark, maintenance_of(root), budget_ms)
    spark.streams.addListener(maintained.listener)
    return maintained


class MaintainedRoot:
    """A root that is maintained between triggers; see `maintain`. A context manager.

    Args:
        spark: The session.
        maintenance: Does the work.
        budget_ms: Time budget after each trigger.

    Attributes:
        listener: The listener of the session.
        reports: One for each run that did anything.
    """

    def __init__(
        self,
        spark: "SparkSession",
        maintenance: Maintenance | BucketMaintenance,
        budget_ms: float,
    ) -> None:
        self._spark, self._maintenance, self._budget_ms = spark, maintenance, budget_ms
        self._chores = BackgroundChores()
        self._guard = threading.Lock()
        self._is_stopped = False
        self.listener = _AfterTriggers(self)
        self.reports: list[MaintenanceReport] = []

    def begin(self) -> None:
        """Start a run, unless one is in progress."""
        with self._guard:
            if not self._is_stopped:
                self._chores(self._do_due)

    def _do_due(self) -> None:
        report = self._maintenance.run_due(budget_ms=self._budget_ms)
        if report.deeds or report.errors:
            self.reports.append(report)

    def stop(self) -> None:
        """Stop after the current run; idempotent."""
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
    """Starts maintenance after each trigger and after the end of a query."""

    def __init__(self, maintained: MaintainedRoot) -> None:
        self._maintained = maintained

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing: no trigger has committed yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Start a run: a trigger has committed."""
        self._maintained.begin()

    def onQueryIdle(self, event: object) -> None:  # noqa: N802 - Spark's name
        """Start a run: work that is due by time does not wait for rows."""
        self._maintained.begin()

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Start a run: Spark may not have reported the last trigger."""
        self._maintained.begin()
