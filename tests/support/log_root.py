"""A log root to write to, as a fixture of `tests.spark` and `tests.arrow`."""

import json

import pyarrow as pa
import pytest

from streamlog.arrow.table_writer import write_table
from streamlog.bucket.keys import READERS
from streamlog.bucket.manager import BucketManager
from streamlog.bucket.places import shared_store
from streamlog.bucket.root import BucketRoot
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

    def recorded(self, group):
        """Return what is recorded of a reader."""
        with open(f"{self.path}/.streamlog/readers/{group}.json") as file:
            return json.load(file)


class ObjectRoot(Root):
    """The same in an object store."""

    def __init__(self, url, **server):
        self.path = url
        BucketRoot(shared_store(url)).create(server)
        self.manager = BucketManager(url)

    def append(self, topic, partition, values, *, timestamp=1_700_000_000_000, key=None):
        """Commit values (text, or bytes)."""
        count = len(values)
        rows = {
            "key": pa.array([key] * count, pa.binary()),
            "value": list(values),
            "partition": pa.array([partition] * count, pa.int32()),
            "timestamp": pa.array([timestamp] * count, pa.timestamp("ms", tz="UTC")),
        }
        written = write_table(pa.table(rows), self.path, topic)
        self.manager.bucket.refresh()
        return written

    def recorded(self, group):
        """Return what is recorded of the only source of a reader."""
        store = shared_store(self.path)
        (found,) = store.list(f"{READERS}{group}/")
        document = json.loads(store.get(found.key, max_size=found.size))
        assert document.pop("entry") > 0
        return document


BOTH_KINDS = pytest.mark.parametrize("root", ["directory", "object store"], indirect=True)


@pytest.fixture
def root(request, tmp_path):
    """A new log root, closed at the end; in an object store where a test asks for `BOTH_KINDS`."""
    if getattr(request, "param", "directory") == "object store":
        yield ObjectRoot(f"file://{tmp_path}/bucket")
        return
    opened = Root(tmp_path / "log")
    yield opened
    opened.manager.close()
