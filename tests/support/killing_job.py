"""A job that copies topic `in` to topic `out` and whose JVM is killed on the way.

    python -m tests.support.killing_job ROOT CHECKPOINT writer|function [POINT BATCH]

POINT says where in batch BATCH the JVM and the process that reaches the point die by SIGKILL:
`staged` (a task has written its file), `collected` (all tasks have reported), `decided` (the
decision is durable, nothing of it is in the log), `applied` (all of it is in the log; Spark has not
recorded it). At `attempt`, only the worker dies that runs a task for the first time, after it has
written its file; Spark runs each task up to three times here. The sink is the real one with these
deaths injected.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql import SparkSession

from streamlog.commits.commit_log import CommitLog
from streamlog.spark import foreach_batch, writer
from streamlog.spark.source import StreamLogSource

POINTS = ("staged", "collected", "decided", "applied")
REPOSITORY = Path(__file__).parents[2]
JOB_SECONDS = 300
_POINT, _BATCH, _PID_FILE = "KILLING_JOB_POINT", "KILLING_JOB_BATCH", "KILLING_JOB_PID_FILE"


def die_at(point: str, version: int) -> None:
    """Kill the JVM and this process if this is the point and the batch to die in."""
    if (os.environ.get(_POINT), os.environ.get(_BATCH)) == (point, str(version)):
        os.kill(int(Path(os.environ[_PID_FILE]).read_text()), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


def die_at_first_attempt(version: int) -> None:
    """Kill this worker if it is to die in this batch and this is the first attempt of its task."""
    context = TaskContext.get()
    is_first = context is not None and context.attemptNumber() == 0
    if is_first and (os.environ.get(_POINT), os.environ.get(_BATCH)) == ("attempt", str(version)):
        os.kill(os.getpid(), signal.SIGKILL)


def arm() -> None:
    """Patch the points into the real functions of this process, once."""
    if getattr(CommitLog, "is_armed", False):
        return
    CommitLog.is_armed = True
    _before(CommitLog, "_apply", lambda _, decision, *rest: ("decided", decision.identity.version))
    for module in (writer, foreach_batch):
        commit_staged = module.commit_staged

        def commit(options: Any, identity: Any, *rest: Any, **named: Any) -> Any:
            die_at("collected", identity.version)
            outcome = commit_staged(options, identity, *rest, **named)  # noqa: B023 - both are one
            die_at("applied", identity.version)
            return outcome

        module.commit_staged = commit


def _before(owner: Any, name: str, where: Callable[..., tuple[str, int]]) -> None:
    function = getattr(owner, name)

    def call(*arguments: Any) -> Any:
        die_at(*where(*arguments))
        return function(*arguments)

    setattr(owner, name, call)


class DyingWriter(writer.StreamWriter):
    """The real writer in a process that may die."""

    def write(self, iterator: Any) -> writer.StagedRows:
        staged = super().write(iterator)
        die_at("staged", staged.staged.version)
        die_at_first_attempt(staged.staged.version)
        return staged

    def commit(self, messages: Any, batchId: int) -> None:
        arm()
        super().commit(messages, batchId)


class DyingSource(StreamLogSource):
    """The real format with that writer."""

    def streamWriter(self, schema: Any, overwrite: bool) -> DyingWriter:
        made = super().streamWriter(schema, overwrite)
        made.__class__ = DyingWriter
        return made


def copy(spark: SparkSession, root: str, checkpoint: str, *, by_function: bool) -> None:
    """Copy all available records, two per batch."""
    spark.dataSource.register(DyingSource)
    stream = spark.readStream.format("streamlog").option("path", root).option("subscribe", "in")
    stream = stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "2")
    sink = stream.load().select("key", "value").writeStream
    sink = sink.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    if by_function:
        arm()
        sink = sink.foreachBatch(foreach_batch.append_batch(root, topic="out"))
    else:
        sink = sink.format("streamlog").option("path", root).option("topic", "out")
    sink.start().awaitTermination()


def run_job(root: str, checkpoint: object, way: str, *death: object) -> None:
    """Run the job in a process of its own, to its end or to the death it is to die.

    Args:
        root: The path or the URL of the root.
        checkpoint: The path of the checkpoint.
        way: As in the command.
        death: As in the command.
    """
    command = [sys.executable, "-m", "tests.support.killing_job", root, str(checkpoint), way]
    job = subprocess.Popen(
        [*command, *map(str, death)],
        cwd=REPOSITORY,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        output, _ = job.communicate(timeout=JOB_SECONDS)
    finally:
        with contextlib.suppress(ProcessLookupError):  # workers outlive their JVM for a moment
            os.killpg(job.pid, signal.SIGKILL)
    text = output.decode(errors="replace")[-4000:]
    if death and death[0] in POINTS:
        assert "StreamingQueryException" not in text, text
        assert job.returncode != 0, text
    else:
        assert job.returncode == 0, text


def main(root: str, checkpoint: str, way: str, point: str = "", batch: str = "") -> None:
    """Run the job."""
    from tests.support.spark_session import open_session

    directory = Path(checkpoint).parent / "spark"
    directory.mkdir(exist_ok=True)
    # Workers inherit the environment that the JVM is started with.
    os.environ |= {_POINT: point, _BATCH: batch, _PID_FILE: str(directory / "pid")}
    spark = open_session(directory, master="local[2,3]")
    (directory / "pid").write_text(str(spark._jvm.java.lang.ProcessHandle.current().pid()))
    copy(spark, root, checkpoint, by_function=way == "function")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
