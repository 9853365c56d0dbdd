"""Bytes that differ from the written ones: bit flips in files, and batches that attack parsers."""

from collections.abc import Iterator
from random import Random
from typing import Any, Final, NamedTuple

import numpy as np

from streamlog.binary.crc import crc32c
from streamlog.config.log_config import LogConfig
from streamlog.errors import StreamLogError
from streamlog.fs.api import FileKind, FileSystem, OpenMode
from streamlog.fs.memory import MemoryFileSystem
from streamlog.records.batch import ScanStop, check_crc, read_batches, scan_batches
from streamlog.records.builder import BatchBuilder
from streamlog.records.decode import decode_columns
from streamlog.records.layout import ATTRIBUTES_OFFSET, CRC_OFFSET
from streamlog.records.record import CompressionType, Record
from streamlog.records.topic_rules import TopicRules
from streamlog.records.validate import AppendOrigin, validate_append
from tests.programs.reliability.history import Crashed, Flushed, History, Raised
from tests.programs.reliability.independent import CRC_START, HEADER
from tests.programs.reliability.invariants import Harm, Violation
from tests.programs.reliability.kinds.survival import SECOND_LIFE, Case, go_on, ground, perform
from tests.programs.reliability.query_writer import PARTITIONS
from tests.programs.reliability.workloads import Workload

FLIPS: Final = 24  # per workload
MUTATIONS: Final = 50  # batches per case
HINTS: Final = (".index", ".timeindex", ".snapshot")  # rebuilt if they are wrong
PROMISED_DESPITE_DAMAGE: Final = {"errors_are_typed", "batches_are_sound"}


# ---- flipped bits ------------------------------------------------------------------------------
def flips(workload: Workload, random: Random) -> Iterator[Case]:
    """One bit of a file is flipped, in this boot or the next.

    If a checksum or a rule detects the flip, an error reports it and nothing is truncated. Files
    that only speed up searches are rebuilt. For any other file, no record may appear that was not
    written.
    """
    memory = ground(workload)
    history: History = []
    subject = perform(workload, memory, history)
    ends = [subject.manager.log("t", p).log_end_offset for p in range(PARTITIONS)]
    subject.close()
    history += [Flushed(p, end) for p, end in enumerate(ends)]
    for _ in range(FLIPS):
        lost_power = random.random() < 0.5
        damaged = memory.crash_clone(Random(0), power=lost_power, loss="nothing")
        flip = _flip(damaged, random)
        before = [*history, Crashed(lost_power)]
        after = list(before)
        found = go_on(damaged, after, life=SECOND_LIFE)
        where = f"{flip}, {'the next boot' if lost_power else 'the same boot'}"
        has_stopped = any(isinstance(each, Raised) for each in after[len(before) :])
        yield Case(where, [each for each in found if _counts(each, flip, has_stopped)])


class Flip(NamedTuple):
    """A flipped bit."""

    path: str
    position: int
    bit: int
    is_checked: bool  # covered by the checksum of a batch

    def __str__(self) -> str:
        return f"bit {self.bit} of byte {self.position} of {self.path} flipped"


def _counts(violation: Violation, flip: Flip, has_stopped: bool) -> bool:
    if violation.invariant in PROMISED_DESPITE_DAMAGE or flip.path.endswith(HINTS):
        return True
    is_refusal = violation.invariant == "work_continues" or has_stopped
    return flip.is_checked and not is_refusal


def _flip(fs: MemoryFileSystem, random: Random) -> Flip:
    paths = [path for path in all_files(fs, "/") if _size(fs, path)]
    kinds = sorted({path.rpartition(".")[2] for path in paths})
    kind = random.choice(kinds)  # else most flips would hit logs
    path = random.choice([each for each in paths if each.rpartition(".")[2] == kind])
    with fs.open(path, OpenMode.WRITE) as file:
        data = file.pread(file.stat().size, 0)
        position, bit = random.randrange(len(data)), random.randrange(8)
        file.pwrite(bytes([data[position] ^ 1 << bit]), position)
    return Flip(path, position, bit, path.endswith(".log") and _is_checked(data, position))


def _is_checked(data: bytes, position: int) -> bool:
    start = 0
    while start + HEADER.size <= len(data):
        size = 12 + HEADER.unpack_from(data, start)[1]
        if position < start + size:
            return position >= start + CRC_START
        start += size
    return False


def _size(fs: FileSystem, path: str) -> int:
    found = fs.stat(path)
    return 0 if found is None else found.size


def all_files(fs: FileSystem, directory: str) -> Iterator[str]:
    """Yield the paths of all files below a directory."""
    for name in fs.list(directory):
        path = f"{directory.rstrip('/')}/{name}"
        found = fs.stat(path)
        if found is not None and found.kind is FileKind.DIRECTORY:
            yield from all_files(fs, path)
        elif found is not None:
            yield path


# ---- mutated batches ---------------------------------------------------------------------------
def mutations(workload: Workload, random: Random) -> Iterator[Case]:
    """Batches are mutated and their checksum is recomputed; all parsers must agree on them.

    The compiled decoder, the reader of single records and an append get the same bytes. Each
    returns records or raises a typed error, and the first two agree.
    """
    del workload  # batches need no root
    for _ in range(4):
        source = a_batch(random)
        violations: list[Violation] = []
        for _ in range(MUTATIONS):
            batch = mutate(source, random)
            violations += _judge(batch)
        yield Case(f"{MUTATIONS} mutations of a batch", violations, count=MUTATIONS)


def a_batch(random: Random) -> bytes:
    """Return a random sound batch."""
    builder = BatchBuilder(
        compression=random.choice([*CompressionType]),
        base_offset=random.choice([0, 7, 2**40, 2**63 - 100]),
    )
    for number in range(random.randrange(1, 6)):
        headers = tuple((f"h{n}", random.choice([None, b"", b"v"])) for n in range(number % 3))
        value = random.choice([None, b"", random.randbytes(random.randrange(200))])
        builder.append(Record(random.choice([None, b"key"]), value, headers, 1_700_000_000_000))
    return builder.build()


def mutate(source: bytes, random: Random) -> bytes:
    """Return a batch with some bytes changed and a valid checksum."""
    data = bytearray(source)
    for _ in range(random.choice([1, 1, 2, 5])):
        at = random.randrange(ATTRIBUTES_OFFSET, len(data))
        match random.randrange(4):
            case 0:
                data[at] ^= 1 << random.randrange(8)
            case 1:
                data[at] = random.choice([0, 1, 0x7F, 0x80, 0xFF])
            case 2:
                extreme = random.choice([0, 1, -1, 2**31 - 1, -(2**31)])
                data[at : at + 4] = extreme.to_bytes(4, "big", signed=True)
            case 3:
                del data[at : at + random.randrange(1, 9)]
                data[8:12] = (len(data) - 12).to_bytes(4, "big")
    del data[len(source) + 8 :]
    data[8:12] = max(len(data) - 12, 0).to_bytes(4, "big")
    if len(data) > ATTRIBUTES_OFFSET:
        data[CRC_OFFSET:ATTRIBUTES_OFFSET] = crc32c(bytes(data[ATTRIBUTES_OFFSET:])).to_bytes(
            4, "big"
        )
    return bytes(data)


def _judge(batch: bytes) -> Iterator[Violation]:
    answers: list[Any] = []
    for parse in PARSERS:
        try:
            answers.append(parse(batch))
        except StreamLogError:
            answers.append(None)
        except Exception as error:  # noqa: BLE001 - any error that is not ours is a finding
            detail = f"{parse.__name__}: {error!r} of {batch.hex()}"
            yield Violation("errors_are_typed", Harm.UNTYPED, detail)
            return
    if _can_be_scanned(batch) and answers[0] != answers[1]:
        yield Violation(
            "parsers_agree", Harm.OTHER, f"of {batch.hex()}: {answers[0]}, {answers[1]}"
        )


def _can_be_scanned(batch: bytes) -> bool:
    scan = scan_batches(batch)
    return scan.stop is ScanStop.END and check_crc(batch, scan.table) == len(scan.table)


def _by_columns(batch: bytes) -> Any:
    columns = decode_columns(
        np.frombuffer(batch, np.uint8),
        scan_batches(batch).table,
        start_offset=-(2**63),
        drop_control=False,
    )
    return [(each.offset, each.key, each.value, each.headers) for each in columns.records()]


def _one_by_one(batch: bytes) -> Any:
    return [
        (each.offset, each.key, each.value, each.headers)
        for found in read_batches(batch)
        for each in found.records()
    ]


def _by_append(batch: bytes) -> Any:
    return len(
        validate_append(
            batch,
            base_offset=0,
            leader_epoch=0,
            rules=TopicRules.of(LogConfig()),
            now_ms=1_700_000_000_000,
            origin=AppendOrigin.CLIENT,
        ).table
    )


PARSERS: Final = (_by_columns, _one_by_one, _by_append)
