"""pytest fixtures for pipelines; pytest loads this plugin if streamlog is installed.

    streamlog_root     a directory for a log root, one per test
    streamlog_topic    creates topics there: `orders = streamlog_topic("orders", ["first"])`
    streamlog_broker   `streamlog_root` served to Kafka clients, at its `bootstrap_servers`
    checkpoint         a `Checkpoint` for the query of the test
    crash              `crash_after` for that checkpoint: `with crash(batch=1, at="applied"): …`
    streamlog_spark    a session with two cores for the whole run, for projects without one

Fixtures of the same name in your `conftest.py` override these. Only pytest is imported until a test
uses a fixture.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from streamlog.gateway import Gateway
    from streamlog.testing.checkpoint import Checkpoint
    from streamlog.testing.topic import Topic

__all__ = [
    "checkpoint",
    "crash",
    "streamlog_broker",
    "streamlog_root",
    "streamlog_spark",
    "streamlog_topic",
]


@pytest.fixture
def streamlog_root(tmp_path: "Path") -> str:
    """The path of a log root for this test.

    def test_it(streamlog_root):
        df.write.format("streamlog").option("path", streamlog_root)…
    """
    return str(tmp_path / "streamlog-root")


@pytest.fixture
def streamlog_topic(streamlog_root: str) -> "Callable[..., Topic]":
    """Creates topics in `streamlog_root`; takes the arguments of `Topic`.

    def test_it(streamlog_topic):
        orders = streamlog_topic("orders", ["first", "second"], partitions=2)
    """
    from streamlog.testing.topic import Topic

    def make(name: str, *arguments: Any, **settings: Any) -> Topic:
        return Topic(streamlog_root, name, *arguments, **settings)

    return make


@pytest.fixture
def streamlog_broker(streamlog_root: str) -> "Iterator[Gateway]":
    """`streamlog_root` served to Kafka clients, without Docker or Java.

    def test_it(streamlog_broker):
        producer = Producer({"bootstrap.servers": streamlog_broker.bootstrap_servers})
    """
    from streamlog.gateway import serve

    with serve(streamlog_root) as gateway:
        yield gateway


@pytest.fixture
def checkpoint(tmp_path: "Path") -> "Checkpoint":
    """A checkpoint for this test.

    def test_it(checkpoint):
        query = df.writeStream.option("checkpointLocation", checkpoint).start()
    """
    from streamlog.testing.checkpoint import Checkpoint

    return Checkpoint(tmp_path / "checkpoint")


@pytest.fixture
def crash(checkpoint: "Checkpoint") -> Callable[..., AbstractContextManager[None]]:
    """`crash_after` for the query that uses the fixture `checkpoint`.

    def test_it(crash):
        with crash(batch=1, at="applied"):
            job()
    """
    from streamlog.testing.crash import crash_after

    def crash(**point: Any) -> AbstractContextManager[None]:
        return crash_after(checkpoint, **point)

    return crash


@pytest.fixture(scope="session")
def streamlog_spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """A Spark session for all tests, created on first use: two cores, no UI, times in UTC.

    def test_it(streamlog_spark):
        assert streamlog_spark.range(3).count() == 3
    """
    from pyspark.sql import SparkSession

    from streamlog.spark.spark_session import register, session

    running = SparkSession.getActiveSession()
    directory = tmp_path_factory.mktemp("spark")
    builder = SparkSession.builder.master("local[2]").appName("streamlog.testing")
    settings = {
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.local.dir": str(directory / "local"),
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = running or session(builder)
    if running is None:  # the exception of a query contains its error as well
        spark.sparkContext.setLogLevel("OFF")
    register(spark)
    yield spark
    if running is None:
        spark.stop()
