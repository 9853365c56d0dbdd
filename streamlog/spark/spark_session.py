"""A SparkSession whose workers run in this Python, and explicit registration of the format.

Spark runs Python workers, and looks for data sources, in the interpreter `PYSPARK_PYTHON`, else in
the first `python3` of the PATH. In a script run by the Python of a virtual environment that is not
activated, this is the wrong interpreter, and Spark raises `DATA_SOURCE_NOT_FOUND`.
"""

import os
import shlex
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["LOCAL_SETTINGS", "register", "runs_here", "session"]

LOCAL_SETTINGS: Final = {
    # The default one forks a process per file on a local path: 100 ms and more per trigger.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing."
        "FileSystemBasedCheckpointFileManager"
    ),
    # The default is for clusters: 200 tasks for a handful of rows.
    "spark.sql.shuffle.partitions": str(len(os.sched_getaffinity(0))),
    # On a busy machine Spark takes longer than the default, 15 s, to answer a new Python worker.
    "spark.python.authenticate.socketTimeout": "60s",
    # The host name of a laptop may not resolve.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def session(builder: "SparkSession.Builder | None" = None) -> "SparkSession":
    """Return a SparkSession that runs its Python workers in this interpreter.

    Sets `PYSPARK_PYTHON` and `PYSPARK_DRIVER_PYTHON` unless they are set. With a local master
    (the default outside of spark-submit: all cores of this machine), `LOCAL_SETTINGS` apply unless
    the builder overrides them. If Spark cannot look for formats, because the path of the
    interpreter contains a space, the format is registered explicitly.

    The builder may have a `remote`. With `remote("local[2]")` Spark Connect's server starts here,
    and the same holds. A server elsewhere (`sc://…`) keeps its own settings, and its own Python
    has to find the format.

    Args:
        builder: A `SparkSession.builder`; a new one by default.

    Returns:
        A new session, or the running one with the builder's settings.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder if builder is None else builder
    chosen = dict(builder._options)
    if runs_here(chosen, os.environ):
        for name, value in LOCAL_SETTINGS.items():
            if name not in chosen:
                builder = builder.config(name, value)
    spark = builder.getOrCreate()
    if not _finds_formats(os.environ["PYSPARK_PYTHON"]):
        register(spark)
    return spark


def runs_here(options: Mapping[str, object], environment: Mapping[str, str]) -> bool:
    """Return whether a session with these options starts a Spark of its own on this machine.

    Args:
        options: The options of the builder.
        environment: The environment of the process.
    """
    if "PYSPARK_GATEWAY_PORT" in environment:
        return False  # spark-submit has started it
    # A remote wins over a master, which Spark then refuses or ignores.
    remote = options.get("spark.remote", environment.get("SPARK_REMOTE"))
    master = options.get("spark.master", "local") if remote is None else remote
    return str(master).startswith("local")


def _finds_formats(python: str) -> bool:
    """Return whether Spark can look for formats: it passes the path to a shell without quotes.

    Source: org.apache.spark.util.Utils.checkCommandAvailable.
    """
    return shlex.quote(python) == python


def register(spark: "SparkSession") -> None:
    """Register `format("streamlog")` in one session, before its queries start.

    This is only needed if Spark does not find the installed package; `streamlog doctor` reports
    the reason.
    """
    from streamlog.spark.source import StreamLogSource

    spark.dataSource.register(StreamLogSource)
