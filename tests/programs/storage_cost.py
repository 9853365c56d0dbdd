"""What a topic in an object store costs a month at list prices, beside other ways to keep it.

    python -m tests.programs.storage_cost [--records-per-s N] [--trigger-s N] [--retention-days N]

The requests of streamlog are counted, not assumed: a writer, a reader and maintenance run their
triggers against a store in memory that records each request. Those of the others follow from how
they write. Prices are list prices of AWS in us-east-1, see `PRICES`; machines, which all but the
last way need as well, are left out, and so are discounts and free allowances.
"""

import argparse
import math
from dataclasses import dataclass
from typing import Final, NamedTuple

from streamlog.bucket.root import BucketRoot
from streamlog.clock import ManualClock
from streamlog.commits.identity import CommitIdentity
from streamlog.maintenance.bucket_runner import BucketMaintenance
from streamlog.records.builder import encode_columns
from streamlog.store.faults import FaultyStore
from streamlog.store.remote import PART_SIZE, PIECE_SIZE, open_store
from streamlog.topic import TopicPartition
from tests.programs.performance.peers import records

MONTH_S: Final = 30 * 24 * 3600
GB: Final = 1e9
PARTS_A_GB: Final = GB / PART_SIZE  # at most: an upload is divided if it is larger than a part
RANGES_A_GB: Final = GB / PIECE_SIZE
RECORD: Final = 1_000  # bytes of a value
TASKS: Final = 2
PARTITIONS: Final = 4
MOST_RECORDS: Final = 100  # a task and partition, in the sample
PUTS: Final = ("create", "put", "upload", "list")
GETS: Final = ("get", "read", "stat")
CHECKPOINT_EVERY: Final = 10  # commits of Delta; delta.checkpointInterval
FILE_EVERY_S: Final = 0.25  # of an agent of WarpStream, by default
ZONES: Final = 3


Requests = dict[str, dict[str, float]]  # a trigger: of a writer, a reader …, by kind


class Price(NamedTuple):
    """A list price in US dollars, and where it is published."""

    dollars: float
    source: str


PRICES: Final = {
    "put": Price(0.005 / 1000, "aws.amazon.com/s3/pricing: PUT, COPY, POST, LIST"),
    "get": Price(0.0004 / 1000, "aws.amazon.com/s3/pricing: GET and all others"),
    "object GB-month": Price(0.023, "aws.amazon.com/s3/pricing: S3 Standard, first 50 TB"),
    "disk GB-month": Price(0.08, "aws.amazon.com/ebs/pricing: gp3"),
    "GB between zones": Price(0.02, "aws.amazon.com/ec2/pricing/on-demand: 0.01 in each direction"),
}


class Load(NamedTuple):
    """A stream: what is written, how often, and how long it is kept."""

    records_per_s: float
    trigger_s: float
    retention_days: float

    @property
    def triggers(self) -> float:
        """Triggers in a month."""
        return MONTH_S / self.trigger_s

    @property
    def written_gb(self) -> float:
        """Gigabytes in a month."""
        return self.records_per_s * RECORD * MONTH_S / GB

    @property
    def kept_gb(self) -> float:
        """Gigabytes that are kept at a time."""
        return self.records_per_s * RECORD * self.retention_days * 24 * 3600 / GB


@dataclass(frozen=True)
class Bill:
    """What one way costs a month: requests, and gigabytes kept and moved."""

    name: str
    puts: float
    gets: float
    gb: dict[str, float]

    def dollars(self) -> dict[str, float]:
        """Return the cost by what is paid for."""
        found = {"put": self.puts * PRICES["put"].dollars, "get": self.gets * PRICES["get"].dollars}
        return found | {what: much * PRICES[what].dollars for what, much in self.gb.items()}


def count_requests(load: Load, *, triggers: int = 400) -> Requests:
    """Run triggers of a writer, a reader and maintenance; return the requests of each a trigger.

    Args:
        load: The stream.
        triggers: How many; those of the first quarter do not count.
    """
    clock = ManualClock(1_700_000_000_000)
    inner = open_store("memory:///cost")
    stores = {who: FaultyStore(inner) for who in ("write", "read", "maintain")}
    roots = {who: BucketRoot(store, clock=clock) for who, store in stores.items()}
    writer, reader = roots["write"], roots["read"]
    writer.create()
    retention_ms = str(int(load.trigger_s * 1000 * triggers / 4))  # a part of the sample ages, too
    size = max(1, round(load.records_per_s * load.trigger_s / TASKS / PARTITIONS))
    count = min(size, MOST_RECORDS)  # segments shrink as much, so the requests stay the same
    configs = {"retention.ms": retention_ms, "segment.bytes": str((1 << 30) * count // size)}
    writer.create_topic("t", partitions=PARTITIONS, configs=configs)
    batch = encode_columns(records(count, RECORD))
    for root in roots.values():
        root.refresh()
    offsets = dict.fromkeys((TopicPartition("t", number) for number in range(PARTITIONS)), 0)
    counts = {who: dict.fromkeys((*PUTS, *GETS, "delete"), 0.0) for who in stores}
    with BucketMaintenance(roots["maintain"]) as maintenance:
        for version in range(triggers):
            clock.advance(int(load.trigger_s * 1000))
            if version == triggers // 4:  # from here on as many segments leave as come
                for store in stores.values():
                    store.requests.clear()
            writer.refresh()
            staged = []
            for task in range(TASKS):
                with writer.stager("app", version, task) as stager:
                    for partition in offsets:
                        stager.append(partition, batch)
                    staged.append(stager.finish(rows=count * PARTITIONS, checksum=None))
            planned = {"t": writer.topic_config("t")}
            writer.commits.commit(CommitIdentity("app", version), staged, planned=planned)
            reader.refresh()
            for partition, offset in offsets.items():
                offsets[partition] = _read(reader, partition, offset)
            maintenance.run_due(budget_ms=math.inf)
    for who, store in stores.items():
        for request in store.requests:
            counts[who][request.operation] += 1 / (triggers - triggers // 4)
    return counts


def _read(root: BucketRoot, partition: TopicPartition, offset: int) -> int:
    reader = root.reader(partition)
    while offset < reader.log_end_offset:
        offset = reader.read(max(offset, reader.log_start_offset), PIECE_SIZE).next_offset
    return offset


def of_streamlog(load: Load, counts: Requests) -> Bill:
    """Return the bill of a root in an object store, with one reader."""
    puts = sum(counts[who][kind] for who in counts for kind in PUTS) * load.triggers
    gets = sum(counts[who][kind] for who in counts for kind in GETS) * load.triggers
    return Bill(
        "streamlog in an object store",
        puts + 2 * load.written_gb * PARTS_A_GB,  # staged, and built into segments
        gets + 2 * load.written_gb * RANGES_A_GB,  # read by the reader, and to build
        {"object GB-month": load.kept_gb},
    )


def of_delta(load: Load) -> Bill:
    """Return the bill of a Delta table: files and an entry a commit, listed by one reader."""
    commits = load.triggers
    written = commits * (TASKS + 1 + 1 / CHECKPOINT_EVERY) + load.written_gb * PARTS_A_GB
    return Bill(
        "Delta table, not compressed",
        written + 2 * commits,  # writer and reader list the log
        commits * (TASKS + 2) + load.written_gb * RANGES_A_GB,
        {"object GB-month": load.kept_gb},
    )


def of_warpstream(load: Load) -> Bill:
    """Return the store's part of the bill of WarpStream with an agent in each zone."""
    files = ZONES * MONTH_S / FILE_EVERY_S
    return Bill(
        "WarpStream, its store only",
        files + load.written_gb * PARTS_A_GB,
        2 * files + load.written_gb * RANGES_A_GB,  # for readers and for compaction
        {"object GB-month": load.kept_gb},
    )


def of_kafka(load: Load) -> Bill:
    """Return the bill of three replicas on disks in three zones."""
    crossing = load.written_gb * ((ZONES - 1) + (ZONES - 1) / ZONES * 2)  # replicas, both clients
    spare = 2  # disks are bought for the peak; half of them is free
    return Bill(
        "Kafka with three replicas",
        0,
        0,
        {"disk GB-month": load.kept_gb * 3 * spare, "GB between zones": crossing},
    )


def main() -> int:
    """Print the bills."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records-per-s", type=float, default=1_000)
    parser.add_argument("--trigger-s", type=float, default=10)
    parser.add_argument("--retention-days", type=float, default=7)
    given = parser.parse_args()
    load = Load(given.records_per_s, given.trigger_s, given.retention_days)
    counts = count_requests(load)
    print(f"requests a trigger of {TASKS} tasks and {PARTITIONS} partitions, counted:")
    for who, found in counts.items():
        puts, gets = (sum(found[kind] for kind in kinds) for kinds in (PUTS, GETS))
        print(f"  {who:10}{puts:6.2f} puts and lists {gets:6.2f} gets")
    millions = load.records_per_s * MONTH_S / 1e6
    print(
        f"\n{load.records_per_s:,.0f} records/s of {RECORD} bytes, a trigger every "
        f"{load.trigger_s:g} s, kept {load.retention_days:g} days: dollars a month"
    )
    kinds = ["put", "get", *(kind for kind in PRICES if "GB" in kind)]
    print(f"{'':30}" + "".join(f"{kind:>18}" for kind in (*kinds, "sum", "a million records")))
    for bill in (of_streamlog(load, counts), of_delta(load), of_warpstream(load), of_kafka(load)):
        paid = bill.dollars()
        total = sum(paid.values())
        row = [*(paid.get(kind, 0.0) for kind in kinds), total]
        numbers = "".join(f"{number:18,.2f}" for number in row)
        print(f"{bill.name:30}{numbers}{total / millions:18.4f}")
    print(
        "\n"
        + "\n".join(
            f"{kind:18} {price.dollars:.7f}  {price.source}" for kind, price in PRICES.items()
        )
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
