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

settings.register_profile("fast", deadline=None, derandomize=True)
settings.register_profile("full", deadline=None, max_examples=1_000)
settings.register_profile("night", deadline=None, max_examples=20_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """A real Spark session on two cores with the format registered."""
    from streamlog.spark.spark_session import register
    from tests.support.spark_session import open_session

    session = open_session(tmp_path_factory.mktemp("spark"))
    register(session)
    yield session
    session.stop()
