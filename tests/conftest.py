"""Settings of all tests: the effort of hypothesis, and the shared Spark session.

`HYPOTHESIS_PROFILE` selects the effort: `fast` (default) tries the same examples every time, `full`
and `night` try random ones and more of them. No profile has a deadline, because kernels compile on
first use.
"""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.s3 import S3Server

settings.register_profile("fast", deadline=None, derandomize=True)
settings.register_profile("full", deadline=None, max_examples=1_000)
settings.register_profile("night", deadline=None, max_examples=20_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))


@pytest.fixture(scope="session")
def s3_endpoint() -> str:
    """The endpoint of an S3 server that `s3` starts, in the environment of this process."""
    from tests.support.s3 import choose_endpoint

    return choose_endpoint()


@pytest.fixture(scope="session")
def s3(s3_endpoint: str) -> "Iterator[S3Server]":
    """A real S3 server for this session."""
    from tests.support.s3 import S3Server

    server = S3Server(s3_endpoint)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, s3_endpoint: str) -> "Iterator[SparkSession]":
    """A real Spark session on two cores with the format registered, and with an S3 endpoint."""
    from streamlog.spark.spark_session import register
    from tests.support.spark_session import open_session

    session = open_session(tmp_path_factory.mktemp("spark"))
    register(session)
    yield session
    session.stop()
