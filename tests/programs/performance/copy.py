"""`streamlog copy` of 128 MB, beside copying the files in a loop that computes their CRC-32C twice.

Twice, because a copy compares the checksums of what it reads, and of what it then reads back. From
and to an object store, also beside obstore alone, which writes or reads the same bytes with the
same checksums.

From and to `streamlog serve` as a Kafka cluster: 96 MB, beside loops of Python that only consume,
or only produce, the same records with librdkafka.
"""

import shutil
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import obstore
import pyarrow as pa
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from crc32c import crc32c
from obstore.store import LocalStore

from streamlog import write_table
from streamlog.root.manager import LogManager
from streamlog.transfer.copying import CopyRequest, TopicCopier
from streamlog.transfer.kafka_copying import KafkaCopier
from streamlog.transfer.places import open_kafka_target, open_source, open_target
from tests.programs.performance.comparison import Comparison, interleaved
from tests.programs.performance.servers import Server, create_topic, serving

SIZE = 128_000_000
KAFKA_SIZE = 96_000_000
ROW_SIZE = 1000
_PIECE = 4 << 20


def compare(rounds: int = 3) -> Iterator[Comparison]:
    """Yield the MB per second of processor time of copies between directories and stores."""
    with TemporaryDirectory() as scratch:
        place = Path(scratch)
        _make(place / "source")
        _copy(place / "source", f"file://{place}/bucket")
        files = partial(_copy_files, place / "source", place / "there")
        put = partial(_put_files, place / "source", place / "there")
        get = partial(_get_files, place / "bucket", place / "there")
        to_store = partial(_copy, place / "source", f"file://{place}/there")
        from_store = partial(_copy, f"file://{place}/bucket", place / "there")
        for bench, ours_does, peer_does, name in (
            ("directory", partial(_copy, place / "source", place / "there"), files, "cp"),
            ("to_store", to_store, put, "obstore"),
            ("to_store.cp", to_store, files, "cp"),
            ("from_store", from_store, get, "obstore"),
            ("from_store.cp", from_store, files, "cp"),
        ):
            ours, peer = interleaved(
                partial(_speed, place, ours_does), partial(_speed, place, peer_does), rounds=rounds
            )
            yield Comparison(f"copy.{bench}", ours, peer, f"{name} with CRC-32C", "MB/cpu-s")
        yield from _compare_kafka(place, rounds)


def _compare_kafka(place: Path, rounds: int) -> Iterator[Comparison]:
    """Yield the same of copies from and to a cluster, without the processor time of its server."""
    source = place / "few-rows"
    _make(source, KAFKA_SIZE)
    with serving(source) as server:
        ours, peer = interleaved(
            partial(_speed, place, partial(_from_kafka, server, place / "there"), KAFKA_SIZE),
            partial(_speed, place, partial(_consume, server), KAFKA_SIZE),
            rounds=rounds,
        )
    yield Comparison("copy.from_kafka", ours, peer, "consuming with librdkafka", "MB/cpu-s")
    ours, peer = interleaved(
        partial(_speed_to_kafka, place / "there", partial(_to_kafka, source)),
        partial(_speed_to_kafka, place / "there", _produce),
        rounds=rounds,
    )
    yield Comparison("copy.to_kafka", ours, peer, "producing with librdkafka", "MB/cpu-s")


def _make(root: Path, size: int = SIZE) -> None:
    with LogManager.open(root, create=True) as manager:
        manager.create_topic("rows", 2, {"segment.bytes": 32 << 20})
    random = np.random.default_rng(1)
    values = [random.bytes(ROW_SIZE) for _ in range(2000)]
    for _ in range(4):
        table = pa.table({"value": pa.array(values * (size // 4 // ROW_SIZE // 2000), pa.binary())})
        write_table(table, str(root), "rows")


def _speed(place: Path, work: Callable[[], None], size: int = SIZE) -> float:
    shutil.rmtree(place / "there", ignore_errors=True)
    start = time.process_time()
    work()
    return size / 1e6 / (time.process_time() - start)


def _copy(source: str | Path, target: str | Path) -> None:
    here, there = open_source(str(source)), open_target(str(target))
    copied = list(TopicCopier(here, there, CopyRequest()).run())
    there.close()
    here.close()
    assert sum(each.size for each in copied) >= (KAFKA_SIZE if here.is_rebuilt else SIZE)


def _from_kafka(server: Server, target: Path) -> None:
    _copy(f"kafka://{server.address}", target)


def _consume(server: Server) -> None:
    settings = {"bootstrap.servers": server.address, "group.id": "none", "check.crcs": True}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    consumer.assign([TopicPartition("rows", number, OFFSET_BEGINNING) for number in (0, 1)])
    left = KAFKA_SIZE
    while left > 0:
        left -= sum(len(each.value() or b"") for each in consumer.consume(2000, 0.1))
    consumer.close()


def _speed_to_kafka(target: Path, work: Callable[[Server], None]) -> float:
    """Serve a new root, and return the MB per second that is written to it."""
    shutil.rmtree(target, ignore_errors=True)
    with serving(target) as server:
        create_topic(server.address, "warm-up")
        start = time.process_time()
        work(server)
        return KAFKA_SIZE / 1e6 / (time.process_time() - start)


def _to_kafka(source: Path, server: Server) -> None:
    there = open_kafka_target(f"kafka://{server.address}")
    copied = list(KafkaCopier(open_source(str(source)), there, CopyRequest(topics=("rows",))).run())
    there.close()
    assert sum(each.size for each in copied) >= KAFKA_SIZE


def _produce(server: Server) -> None:
    random = np.random.default_rng(1)
    values = [random.bytes(ROW_SIZE) for _ in range(2000)]
    create_topic(server.address, "rows")
    producer = Producer({"bootstrap.servers": server.address, "enable.idempotence": True})
    for number in range(KAFKA_SIZE // ROW_SIZE):
        while True:
            try:
                producer.produce("rows", values[number % 2000])
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(60) == 0


def _copy_files(source: Path, target: Path) -> None:
    for path in sorted(source.glob("rows-*/*.log")):
        copy = target / path.parent.name / path.name
        copy.parent.mkdir(parents=True, exist_ok=True)
        with copy.open("w+b") as written:
            crc = _write(written.write, _pieces(path))
            written.seek(0)
            again = 0
            while piece := written.read(_PIECE):
                again = crc32c(piece, again)
            assert crc == again


def _put_files(source: Path, target: Path) -> None:
    """Write files into a store and read them back, as obstore does it."""
    store = LocalStore(str(target), mkdir=True)
    for path in sorted(source.glob("rows-*/*.log")):
        key = f"{path.parent.name}/{path.name}"
        with obstore.open_writer(store, key, buffer_size=8 << 20, max_concurrency=4) as writer:
            crc = _write(writer.write, _pieces(path))
        assert crc == _write(None, _objects(store, key))


def _get_files(source: Path, target: Path) -> None:
    """Read objects into files, and read those back."""
    store = LocalStore(str(source))
    for path in sorted(source.glob("rows-*/*/*.log")):
        copy = target / path.parent.parent.name / path.name
        copy.parent.mkdir(parents=True, exist_ok=True)
        with copy.open("wb") as written:
            crc = _write(written.write, _objects(store, str(path.relative_to(source))))
        assert crc == _write(None, _pieces(copy))


def _write(write: Callable[[Any], Any] | None, pieces: Iterator[Any]) -> int:
    """Write pieces; return their checksum."""
    crc = 0
    for piece in pieces:
        crc = crc32c(piece, crc)
        if write is not None:
            write(piece)
    return crc


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as read:
        while piece := read.read(_PIECE):
            yield piece


def _objects(store: LocalStore, key: str) -> Iterator[memoryview]:
    size = store.head(key)["size"]
    for start in range(0, size, _PIECE):
        yield memoryview(store.get_range(key, start=start, length=min(_PIECE, size - start)))
