"""`crash_after`: stops a query at a named point of a batch and leaves the state of a crash there.

    plan batch N → offsets/N → tasks stage → decide → apply → commits/N → plan batch N + 1
                          ↑            ↑        ↑        ↑           ↑
                       offsets      staged   decided  applied     commits

Nothing is undone afterwards: the query stops at the point, in a running session.

- `applied` and `commits`, for any source and sink: a file in the place of `commits/N`
  (`offsets/N+1`) makes Spark stop, because it takes the file for that of another query.
- `offsets`, for any source and sink: batch N runs with a sink that stops immediately, so the batch
  is planned but has no effect.
- `staged` and `decided`, for streamlog's own sinks: the file system fails at that operation of the
  commit, in the worker or the driver.

State outside of the checkpoint and the log does not end, unlike in a real crash: caches of the
session and variables of your code.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Final

from streamlog.clock import Clock, SystemClock
from streamlog.errors import InvalidRequestError
from streamlog.fs.faults import Fault, Moment
from streamlog.testing.checkpoint import Checkpoint
from streamlog.testing.disk import disk_with
from streamlog.testing.frames import hides_helper
from streamlog.testing.queries import KilledError, Start, started_through

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery, StreamingQueryManager

__all__ = ["CRASH_POINTS", "crash_after"]
__tracebackhide__ = hides_helper

CRASH_POINTS: Final = ("offsets", "staged", "decided", "applied", "commits")

_DEATHS: Final = {
    "staged": Fault(operation="lock"),  # the first operation of a commit
    "decided": Fault(
        operation="sync_directory", path_suffix="/commits/pending", moment=Moment.AFTER
    ),
}
_INITIALIZING: Final = "Initializing"  # start of Spark's status before it reads offsets
_POLL_S: Final = 0.05
_SIGNS: Final = ("CONCURRENT_STREAM_LOG_UPDATE", "KilledError", "SimulatedCrash")


@contextmanager
def crash_after(
    checkpoint: "str | os.PathLike[str]",
    *,
    batch: int,
    at: str = "applied",
    timeout_ms: float = 120_000,
) -> Iterator[None]:
    """Crash the query that the block starts when a batch reaches a point.

        with crash_after("checkpoint", batch=1, at="applied"):
            job()
        job()

    The job may wait for its query, or the block does. The error that ends the query is suppressed;
    any other is raised.

    Args:
        checkpoint: The query's checkpointLocation. One query per block.
        batch: The batch number, from 0; earlier batches run normally.
        at: `offsets`: planned, not started. `applied`: finished by the sink, not recorded by
            Spark. `commits`: recorded by Spark. For streamlog's own sinks also `staged`: all tasks
            have written, nothing is decided; and `decided`: decided, nothing is in the log yet.
        timeout_ms: Maximum time until the query reaches the point.

    Raises:
        InvalidRequestError: No such point, or the batch is already finished.
        AssertionError: The query did not reach the point.
    """
    crash = _Crash(Checkpoint(checkpoint), batch, at, SystemClock(), timeout_ms)
    with ExitStack() as stack:
        stack.enter_context(started_through(crash.start))
        if at in _DEATHS:
            from streamlog.testing.sinks import DiskSink, changed_sinks

            sink = DiskSink(disk_with(_DEATHS[at]), batch, is_deadly=True)
            stack.enter_context(changed_sinks(sink))
        try:
            yield
            crash.wait()
        except Exception:
            if not crash.has_struck():
                raise
        finally:
            crash.clear()
    crash.check()


class _Crash:
    """One crash, pending or done."""

    def __init__(
        self, checkpoint: Checkpoint, batch: int, at: str, clock: Clock, timeout_ms: float
    ) -> None:
        if at not in CRASH_POINTS:
            raise InvalidRequestError(
                "no such crash point", got=repr(at), expected=", ".join(CRASH_POINTS)
            )
        if batch < checkpoint.next_batch():
            raise InvalidRequestError(
                f"batch {batch} is already finished",
                path=checkpoint.path,
                expected=f"batch {checkpoint.next_batch()} or later",
            )
        self._checkpoint, self._batch, self._at = checkpoint, batch, at
        self._clock, self._timeout_ms = clock, timeout_ms
        self._queries: StreamingQueryManager
        self._query: StreamingQuery | None = None
        self._obstacle: tuple[str, int] | None = None
        self._has_begun = False

    # ---- start -------------------------------------------------------------------------------
    def start(self, writer: "DataStreamWriter", start: Start) -> "StreamingQuery":
        """Start the job's query with the crash installed."""
        if self._has_begun:
            return start()
        self._has_begun = True
        self._queries = writer._spark.streams
        if self._at == "offsets":
            return self._start_and_plan(writer, start)
        query = self._start(start)
        if self._at == "applied":
            self._obstruct(query, "commits", self._batch)
        elif self._at == "commits":
            self._obstruct(query, "offsets", self._batch + 1)
        return query

    def _start_and_plan(self, writer: "DataStreamWriter", start: Start) -> "StreamingQuery":
        if self._batch > self._checkpoint.next_batch():
            query = self._start(start)
            self._obstruct(query, "offsets", self._batch)
            self.wait()
            self.clear()
            if not self.has_struck():
                return query
            self._query = None
        # Keep all settings of the writer except those of its sink.
        _forget_partitions(writer)
        return self._start(writer.foreachBatch(_die).start)

    def _start(self, start: Start) -> "StreamingQuery":
        """Start a query and check that it uses our checkpoint."""
        query = self._query = start()
        if query.id != self._checkpoint.query_id():
            query.stop()
            raise InvalidRequestError(
                "the query in the block uses another checkpoint", expected=self._checkpoint.path
            )
        return query

    def _obstruct(self, query: "StreamingQuery", kind: str, batch: int) -> None:
        """Stop the query where it writes a file, after it has listed the existing ones."""
        while query.isActive and query.status["message"].startswith(_INITIALIZING):
            self._clock.sleep_ms(1)
        if query.isActive:
            self._checkpoint.obstruct(kind, batch)
            self._obstacle = (kind, batch)

    # ---- end ---------------------------------------------------------------------------------
    def wait(self) -> None:
        """Wait until the query ends or cannot proceed."""
        deadline = self._clock.monotonic_ms() + self._timeout_ms
        while self._query is not None and self._query.isActive:
            if self._is_between_batches() or self._clock.monotonic_ms() > deadline:
                return
            with suppress(Exception):  # `has_struck` examines the error
                self._query.awaitTermination(_POLL_S)

    def has_struck(self) -> bool:
        """Return whether the query ended at the crash point."""
        if self._query is None:
            return False
        error = str(self._query.exception() or "")
        return any(sign in error for sign in _SIGNS) or self._is_between_batches()

    def clear(self) -> None:
        """Stop the query and remove everything but Spark's own files."""
        if self._query is not None:
            self._query.stop()
            self._queries.resetTerminated()  # else awaitAnyTermination always returns it
        if self._obstacle is not None:
            self._checkpoint.clear(*self._obstacle)
            self._obstacle = None

    def check(self) -> None:
        """Raise AssertionError unless the query ended at the crash point."""
        if self._query is None:
            raise AssertionError("no streaming query was started in the block")
        if not self.has_struck():
            done = self._checkpoint.committed()
            last = f"finished batch {done[-1]} last" if done else "finished no batch"
            raise AssertionError(
                f"batch {self._batch} did not reach {self._at!r} within"
                f" {self._timeout_ms / 1000:g} s: the query {last}"
                f" ({self._query.exception() or 'without an error'})"
            )

    def _is_between_batches(self) -> bool:
        """Return whether the batch is finished and the next one cannot start."""
        return self._at == "commits" and self._batch in self._checkpoint.committed()


def _forget_partitions(writer: "DataStreamWriter") -> None:
    """Reset `partitionBy`, which foreachBatch rejects; Spark has no public way to do so."""
    field = writer._jwrite.getClass().getDeclaredField("partitioningColumns")
    field.setAccessible(True)
    field.set(writer._jwrite, writer._spark._jvm.scala.Option.empty())


def _die(frame: "DataFrame", batch_id: int) -> None:
    del frame
    raise KilledError(f"a test ends the query after planning batch {batch_id}")
