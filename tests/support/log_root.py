"""A log root to write to, as a fixture of `tests.spark` and `tests.arrow`."""

import pytest

from streamlog.records.record import Record
from streamlog.root.manager import LogManager


class Root:
    """A log root to write to."""

    def __init__(self, path):
        self.path = str(path)
        self.manager = LogManager.open(self.path, create=True)

    def create(self, topic="orders", partitions=1, **configs):
        self.manager.create_topic(topic, partitions, configs or None)
        return self

    def append(self, topic, partition, values, *, timestamp=1_700_000_000_000, key=None):
        """Append one batch of values (text, or bytes)."""
        records = [
            Record(key, value.encode() if isinstance(value, str) else value, (), timestamp)
            for value in values
        ]
        return self.manager.log(topic, partition).append(records)

    def log(self, topic="orders", partition=0):
        return self.manager.log(topic, partition)


@pytest.fixture
def root(tmp_path):
    """A new log root, closed at the end."""
    opened = Root(tmp_path / "log")
    yield opened
    opened.manager.close()
