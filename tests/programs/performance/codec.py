"""Encoding and decoding of batches compared with aiokafka, and codecs with the bare libraries.

The batch is the one that the goals are stated for: 1,000 records, keys of 10 bytes, values of 100.
Decoding includes the checksum on both sides. aiokafka's codec is Cython and makes an object per
record; ours makes Arrow buffers. Messages of v0 and v1, which have a header and a checksum each,
are compared with aiokafka and with v2.
"""

import random
import time
import zlib
from collections.abc import Callable, Iterator

import lz4.frame
import numpy as np
import snappy
import zstandard
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords

from streamlog.binary import compression
from streamlog.records.batch import check_crc, scan_batches
from streamlog.records.builder import encode_columns
from streamlog.records.columns import BinaryColumn, InputColumns
from streamlog.records.decode import decode_columns
from streamlog.records.record import Record
from tests.programs.performance.comparison import Comparison, interleaved
from tests.twins.legacy_builder import LegacyBuilder

RECORDS = 1_000
START_MS = 1_700_000_000_000
CALLS = 50  # per measurement
ROUNDS = 15
SAMPLE = 1 << 20  # bytes to decompress
SNAPPY_BLOCK = 32 << 10

RANDOM = random.Random(11)
KEYS = [b"%010d" % index for index in range(RECORDS)]
VALUES = [RANDOM.randbytes(100) for _ in range(RECORDS)]
TIMES = list(range(START_MS, START_MS + RECORDS))


def compare() -> Iterator[Comparison]:
    columns = InputColumns(
        np.array(TIMES, np.int64),
        BinaryColumn.from_values(KEYS),
        BinaryColumn.from_values(VALUES),
    )
    buffer = encode_columns(columns).buffer.tobytes()

    def encode() -> None:
        encode_columns(columns)

    def decode() -> None:
        decode_checked(buffer)

    yield beside_aiokafka("codec.encode", encode, encode_with_aiokafka, goal=4.0)
    yield beside_aiokafka("codec.decode", decode, lambda: decode_with_aiokafka(buffer), goal=2.0)
    for magic in (0, 1):
        yield from messages(magic, decode)
    yield from decompressors()


def messages(magic: int, decode_v2: Callable[[], object]) -> Iterator[Comparison]:
    """Yield the decoding rate of an old message format, compared with aiokafka and with v2."""
    builder = LegacyBuilder(magic)
    for time_, key, value in zip(TIMES, KEYS, VALUES, strict=True):
        builder.append(Record(key, value, (), time_))
    buffer = builder.build()

    def decode() -> None:
        decode_checked(buffer)

    bench = f"codec.decode.v{magic}"
    yield beside_aiokafka(bench, decode, lambda: decode_messages_with_aiokafka(buffer), goal=2.0)
    rates = interleaved(rate(decode, RECORDS), rate(decode_v2, RECORDS), rounds=ROUNDS)
    yield Comparison(f"{bench}.beside_v2", *rates, "v2", "records/s", goal=0.3)


def decode_checked(buffer: bytes) -> None:
    table = scan_batches(buffer).table
    if check_crc(buffer, table) != len(table):
        raise AssertionError("the checksum is wrong")
    decode_columns(buffer, table)


def beside_aiokafka(
    bench: str, ours: Callable[[], object], peer: Callable[[], object], *, goal: float
) -> Comparison:
    """Measure in records per second."""
    rates = interleaved(rate(ours, RECORDS), rate(peer, RECORDS), rounds=ROUNDS)
    return Comparison(bench, *rates, "aiokafka", "records/s", goal=goal)


def rate(function: Callable[[], object], amount: int) -> Callable[[], float]:
    """Return a measurement: units of `amount` per second of `function`."""

    def measure() -> float:
        started = time.perf_counter()
        for _ in range(CALLS):
            function()
        return amount * CALLS / (time.perf_counter() - started)

    return measure


def encode_with_aiokafka() -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    for index in range(RECORDS):
        builder.append(index, TIMES[index], KEYS[index], VALUES[index], [])
    return bytes(builder.build())


def decode_with_aiokafka(buffer: bytes) -> None:
    batch = DefaultRecordBatch(buffer)
    if not batch.validate_crc():
        raise AssertionError("the checksum is wrong")
    for _ in batch:
        pass


def decode_messages_with_aiokafka(buffer: bytes) -> None:
    messages = MemoryRecords(buffer)
    while messages.has_next():
        message = messages.next_batch()
        if not message.validate_crc():
            raise AssertionError("the checksum is wrong")
        for _ in message:
            pass


# ---- codecs ------------------------------------------------------------------------------------
def decompressors() -> Iterator[Comparison]:
    """Yield MB/s by codec of our bounded reader, compared with the library underneath."""
    words = [RANDOM.randbytes(RANDOM.randint(2, 6)).hex().encode() for _ in range(800)]
    text = b" ".join(RANDOM.choice(words) for _ in range(SAMPLE // 5))[:SAMPLE]
    blocks = [
        snappy.compress(text[start : start + SNAPPY_BLOCK])
        for start in range(0, SAMPLE, SNAPPY_BLOCK)
    ]
    zstd = zstandard.ZstdDecompressor()
    bare: dict[int, Callable[[bytes], object]] = {
        compression.GZIP: lambda packed: zlib.decompress(packed, compression.GZIP_FRAMING),
        compression.SNAPPY: lambda _: b"".join(map(snappy.decompress, blocks)),
        compression.LZ4: lz4.frame.decompress,
        compression.ZSTD: lambda packed: zstd.decompress(packed, max_output_size=SAMPLE),
    }
    for codec, library in bare.items():
        yield beside_library(codec, compression.compress(codec, text), library)


def beside_library(codec: int, packed: bytes, library: Callable[[bytes], object]) -> Comparison:
    megabytes = interleaved(
        rate(lambda: compression.decompress(codec, packed, max_size=SAMPLE), SAMPLE),
        rate(lambda: library(packed), SAMPLE),
        rounds=3,
    )
    ours, peer = (figure / 1e6 for figure in megabytes)
    name = compression.CODECS[codec].name
    return Comparison(f"codec.decompress.{name}", ours, peer, f"bare {name}", "MB/s", goal=0.9)
