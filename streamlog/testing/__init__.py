"""Tests for failures of your pipeline, in seconds and without Docker.

    from streamlog.testing import Checkpoint, Topic, assert_exactly_once, crash_after

    orders = Topic("root", "orders")
    orders.append([{"key": "ann", "value": {"item": 7}}])
    with crash_after("checkpoint", batch=0, at="applied"):
        job()                       # your code: starts a query and may wait for it
    job()                           # continues from the checkpoint after the crash
    assert_exactly_once(orders, spark.read.parquet("table"), key="value")

`crash_after` and `Checkpoint` work with any source and any sink; `Topic` does not need Spark. The
pytest plugin (`streamlog.testing.plugin`) provides fixtures. Each name is imported on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamlog.testing.attempts import duplicate_attempt, zombie_attempt
    from streamlog.testing.checkpoint import Checkpoint
    from streamlog.testing.comparison import (
        assert_exactly_once,
        assert_no_duplicates,
        assert_no_loss,
    )
    from streamlog.testing.crash import CRASH_POINTS, crash_after
    from streamlog.testing.damage import flip_bit, tear_append
    from streamlog.testing.disk import failed_fsync, full_disk, slow_disk
    from streamlog.testing.topic import Topic

_HOME = {
    "CRASH_POINTS": "crash",
    "Checkpoint": "checkpoint",
    "Topic": "topic",
    "assert_exactly_once": "comparison",
    "assert_no_duplicates": "comparison",
    "assert_no_loss": "comparison",
    "crash_after": "crash",
    "duplicate_attempt": "attempts",
    "failed_fsync": "disk",
    "flip_bit": "damage",
    "full_disk": "disk",
    "slow_disk": "disk",
    "tear_append": "damage",
    "zombie_attempt": "attempts",
}

__all__ = [
    "CRASH_POINTS",
    "Checkpoint",
    "Topic",
    "assert_exactly_once",
    "assert_no_duplicates",
    "assert_no_loss",
    "crash_after",
    "duplicate_attempt",
    "failed_fsync",
    "flip_bit",
    "full_disk",
    "slow_disk",
    "tear_append",
    "zombie_attempt",
]

if not TYPE_CHECKING:

    def __getattr__(name):
        if name in _HOME:
            value = getattr(import_module(f"streamlog.testing.{_HOME[name]}"), name)
            globals()[name] = value
            return value
        raise AttributeError(f"module 'streamlog.testing' has no attribute {name!r}")

    def __dir__():
        return sorted(__all__)
