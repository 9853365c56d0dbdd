"""The shared Spark session of the tests, and a collector of streaming rows."""

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from streamlog.spark.spark_session import LOCAL_SETTINGS


def open_session(
    directory: Path, *, master: str = "local[2]", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Return a session on two cores whose workers run in this Python.

    Args:
        directory: A directory for Spark's own files.
        master: The master; `local[2,3]` tries each task up to three times.
        settings: Further settings.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master).appName("streamlog tests")
    chosen = {
        **LOCAL_SETTINGS,
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "2g",
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.local.dir": str(directory / "local"),
        **(settings or {}),
    }
    for name, value in chosen.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


class Collected:
    """Rows of a streaming query by batch; pass `add` to foreachBatch."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, list]] = []
        self.before: Callable[[int], None] = lambda batch_id: None

    def add(self, frame: DataFrame, batch_id: int) -> None:
        """Keep the rows of one batch; `before` may raise to make it fail."""
        self.before(batch_id)
        self.batches.append((batch_id, frame.collect()))

    @property
    def rows(self) -> list:
        """All rows."""
        return [row for _, rows in self.batches for row in rows]

    @property
    def values(self) -> list[bytes]:
        """The values, sorted."""
        return sorted(row.value for row in self.rows)
