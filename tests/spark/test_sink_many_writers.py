"""Two queries and a plain producer write one topic at the same time."""

import threading

import pytest

from streamlog.records.record import Record
from streamlog.root.manager import LogManager
from tests.support.sink import records_of, stream_of

pytestmark = pytest.mark.spark

BATCHES = 8
ROWS_PER_BATCH = 3


def start_query(spark, root, name, tmp_path):
    """Copy a topic called `name` to `out`, three records a batch."""
    stream = stream_of(spark, root.path, name, maxOffsetsPerTrigger=str(ROWS_PER_BATCH))
    sink = stream.select("key", "value").writeStream.format("streamlog")
    sink = sink.option("path", root.path).option("topic", "out")
    sink = sink.option("checkpointLocation", str(tmp_path / name))
    return sink.trigger(availableNow=True).start()


def produce(path, count, failures):
    """Append single records, each by somebody who opens the root for it."""
    try:
        for number in range(count):
            with LogManager.open(path) as manager:
                manager.log("out", number % 2).append([Record(b"p", b"plain %d" % number)])
    except Exception as error:  # noqa: BLE001 - shown by the test
        failures.append(error)


def test_all_records_arrive_once_and_offsets_have_no_gaps(spark, root, tmp_path):
    root.create("out", partitions=2)
    names = ("left", "right")
    for name in names:
        root.create(name)
        values = [f"{name} {number}" for number in range(BATCHES * ROWS_PER_BATCH)]
        root.append(name, 0, values)
    failures = []
    producer = threading.Thread(target=produce, args=(root.path, 60, failures))

    queries = [start_query(spark, root, name, tmp_path) for name in names]
    producer.start()
    for query in queries:
        assert query.awaitTermination(300)
        assert query.exception() is None
    producer.join()

    assert failures == []
    found = records_of(root.path, "out")
    for records in found.values():
        assert [record.offset for record in records] == list(range(len(records)))
    values = sorted(record.value for records in found.values() for record in records)
    written = [b"plain %d" % number for number in range(60)]
    for name in names:
        written += [b"%s %d" % (name.encode(), n) for n in range(BATCHES * ROWS_PER_BATCH)]
    assert values == sorted(written)
    for records in found.values():
        for name in (b"left", b"right"):
            own = [int(r.value.split()[1]) for r in records if r.value.startswith(name)]
            assert own == sorted(own)
