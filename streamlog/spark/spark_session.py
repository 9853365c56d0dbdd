"""A SparkSession whose workers run in this Python, and the format registered by hand.

Spark runs Python workers, and looks for data sources, in the interpreter that `PYSPARK_PYTHON`
names, else in whatever `python3` is found first. A script started by a virtual environment that
nobody activated is then asked in vain: `DATA_SOURCE_NOT_FOUND`.
"""

import os
import shlex
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["LOCAL_SETTINGS", "register", "session"]

LOCAL_SETTINGS: Final = {
    # The default one forks a process per file on a local path: 100 ms and more in each trigger.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing."
        "FileSystemBasedCheckpointFileManager"
    ),
    # Made for clusters, 200 tasks for a handful of rows.
    "spark.sql.shuffle.partitions": str(len(os.sched_getaffinity(0))),
    # A laptop's name need not lead anywhere.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def session(builder: "SparkSession.Builder | None" = None) -> "SparkSession":
    """Return a SparkSession that runs its Python workers in this interpreter.

    Sets `PYSPARK_PYTHON` and `PYSPARK_DRIVER_PYTHON` where they are not set. Where the master is
    local (or nothing says which, outside of spark-submit: then all cores of this machine), the
    settings of `LOCAL_SETTINGS` hold unless the builder has its own. Where Spark cannot look for
    formats, as the interpreter's path has a space in it, ours is registered by hand.

    Args:
        builder: Your own `SparkSession.builder…`; a new one by default.

    Returns:
        The session, or the running one with the builder's settings.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder if builder is None else builder
    chosen = dict(builder._options)
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if not submitted and str(chosen.get("spark.master", "local")).startswith("local"):
        for name, value in LOCAL_SETTINGS.items():
            if name not in chosen:
                builder = builder.config(name, value)
    spark = builder.getOrCreate()
    if not _finds_formats(os.environ["PYSPARK_PYTHON"]):
        register(spark)
    return spark


def _finds_formats(python: str) -> bool:
    """Tell whether Spark looks for formats in an interpreter: its name goes to a shell as it is.

    Source: org.apache.spark.util.Utils.checkCommandAvailable.
    """
    return shlex.quote(python) == python


def register(spark: "SparkSession") -> None:
    """Make `format("streamlog")` known to one session.

    Only needed where Spark does not find the installed package by itself; the command
    `streamlog doctor` says why. To be called before a query starts.
    """
    from streamlog.spark.source import StreamLogSource

    spark.dataSource.register(StreamLogSource)
