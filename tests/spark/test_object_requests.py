"""The requests of a trigger to an object store, counted by an S3 server; no Spark needed."""

import time

import pyarrow as pa
import pytest

from streamlog.arrow.bucket_view import BucketLogView
from streamlog.arrow.log_view import OffsetRange, TopicChoice
from streamlog.arrow.losses import LossReporter
from streamlog.arrow.object_reading import read_objects
from streamlog.arrow.schema import SinkSchema
from streamlog.arrow.stage import StagePlan, stage_rows
from streamlog.bucket.manager import BucketManager
from streamlog.bucket.read_roots import BucketReadRoots
from streamlog.clock import SystemClock
from streamlog.commits.identity import CommitIdentity
from streamlog.commits.replay import ReplayRule
from streamlog.fs.local import LocalFileSystem
from streamlog.query.checkpoint import BatchSource
from streamlog.records.record import CompressionType
from streamlog.spark.bucket_sink import OpenBucket
from streamlog.spark.options import Use
from streamlog.spark.sink_options import SinkOptions
from streamlog.topic import TopicPartition

ROWS = pa.RecordBatch.from_pydict({"value": pa.array([b"x"] * 20)})
SCHEMA = SinkSchema(value=0, key=None, headers=None, topic=None, partition=None, timestamp=None)
PARTITIONS = 4


@pytest.fixture
def url(s3):
    place = s3.new_bucket()
    with BucketManager(place, create=True) as manager:
        manager.create_topic("in", PARTITIONS)
        manager.create_topic("out", PARTITIONS)
    return place


class Job:
    """The calls of a query that copies a topic, without the engine between them."""

    def __init__(self, url, topic="out"):
        self.url, self.version = url, 0
        self.app = f"copy-to-{topic}"
        self.sink = OpenBucket(url)
        self.options = SinkOptions.of({"path": url, "topic": topic}, Use.STREAM_WRITE)
        self.view = BucketLogView(BucketReadRoots(url), TopicChoice(topics=("in",)))
        self.done = dict.fromkeys(self.view.bounds, 0)

    def read(self):
        """Return the number of ranges and of new records."""
        self.view.refresh()
        parts = [
            self.view.planned(OffsetRange(*partition, self.done[partition], bounds.end_offset))
            for partition, bounds in self.view.bounds.items()
            if bounds.end_offset > self.done[partition]
        ]
        self.done = {partition: at.end_offset for partition, at in self.view.bounds.items()}
        found = read_objects(parts, reporter=LossReporter(fail=True), max_decompressed_bytes=None)
        return sum(len(part.stretches) for part in parts), sum(
            len(list(info.records())) for _, info in found
        )

    def write(self, tasks):
        """Write one batch."""
        topics = self.sink.plan(self.options.topic)
        plan = StagePlan(
            roots=(self.url,),
            schema=SCHEMA,
            topic=self.options.topic,
            compression=CompressionType.NONE,
            has_checksum=True,
            topics=topics,
        )
        staged = [
            stage_rows(
                LocalFileSystem(),
                SystemClock(),
                plan,
                [ROWS],
                app=self.app,
                version=self.version,
                task=task,
            )
            for task in range(tasks)
        ]
        self.sink.commit(
            CommitIdentity(self.app, self.version),
            staged,
            self.options,
            planned=[topics],
            rule=ReplayRule.NEXT,
            source=BatchSource(None),
            note=None,
            sync_paths=(),
        )
        self.version += 1


def counted(s3, work):
    """Return the numbers of puts and of other requests of a piece of work, and its result."""
    s3.requests.clear()
    result = work()
    puts = sum(method == "PUT" for method, _ in s3.requests)
    return puts, len(s3.requests) - puts, result


def test_a_trigger_makes_few_requests_however_many_there_were(s3, url):
    writer, reader = Job(url, "in"), Job(url)
    for trigger in range(40):
        puts, others, _ = counted(s3, lambda: writer.write(3))
        assert puts <= 3 + 2, trigger
        assert others <= 4, trigger
        _, others, (ranges, records) = counted(s3, reader.read)
        assert records == 60
        assert others <= 2 + ranges, trigger


def test_a_small_trigger_takes_eight_round_trips_at_most(s3, url):
    """A trigger of one task waits for one request after another; `BUCKET.md` lists them.

    Counted; the time with 50 ms added to each request is printed, the fastest of three.
    """
    writer, copier = Job(url, "in"), Job(url)
    took = {0: [], 0.05: []}
    for delay_s in (0, 0, 0, 0.05, 0.05, 0.05):
        writer.write(1)
        s3.requests.clear()
        s3.delay_s = delay_s
        try:
            start = time.monotonic()
            assert copier.read()[1] == 20
            copier.write(1)
            took[delay_s].append(time.monotonic() - start)
        finally:
            s3.delay_s = 0
        if copier.version > 1:  # the first one opens the root
            assert len(s3.requests) <= 8
    trips = (min(took[0.05]) - min(took[0])) / 0.05
    print(f"small trigger: {trips:.1f} round trips of latency")
    assert trips > 1, "the requests were not delayed"


def test_opening_takes_five_requests_at_most(s3, url):
    job = Job(url)
    for _ in range(18):
        job.write(1)
    _, others, view = counted(
        s3, lambda: BucketLogView(BucketReadRoots(url), TopicChoice(topics=("out",)))
    )
    assert others <= 5
    assert view.bounds[TopicPartition("out", 0)].end_offset > 0
