"""Measures the disk of this machine, and what a power cut destroys under each flush policy.

    python -m tests.programs.reliability.disk [--json] [--directory PATH] [--cuts N]

Four tables. *Writes*: sequential and random ones, with one sync at the end or a sync per block.
*Write-back*: how long the kernel keeps written pages in memory, as configured and with other `vm.*`
settings (needs root; they are restored). *Flush policies*: the cost of appends under each.
*Losses*: a writer appends as fast as it can to a real file system whose power is cut
(`reliability.kinds.disks`); acknowledged records that are missing afterwards are lost.
`tests.programs.reliability.report` puts the tables into `streamlog/RELIABILITY.md`.
"""

import argparse
import itertools
import json
import logging
import mmap
import os
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from streamlog.commits.identity import CommitIdentity
from streamlog.commits.staging import Stager
from streamlog.fs import local
from streamlog.records.builder import BatchBuilder, InputColumns, encode_columns
from streamlog.records.record import CompressionType, Record
from streamlog.root.manager import LogManager
from streamlog.topic import TopicPartition
from tests.programs.reliability import machine, scratch
from tests.programs.reliability.content import NOW
from tests.programs.reliability.kinds.disks import (
    JOURNAL_FLUSHED,
    JOURNAL_LOST,
    Disk,
    in_child,
    missing,
    mounted,
)

BLOCK: Final = 4096
FILE_SIZE: Final = 64 << 20
BATCH: Final = 10  # records of an append, each of 1 KiB
IMAGE_MIB: Final = 1024
SECONDS: Final = 2.0  # of each measurement
VM: Final = Path("/proc/sys/vm")
WRITE_BACK: Final[tuple[Mapping[str, str], ...]] = (
    {},
    {"dirty_expire_centisecs": "500"},
    {"dirty_expire_centisecs": "100", "dirty_writeback_centisecs": "100"},
    {"dirty_background_bytes": str(4 << 20)},
)
POLICIES: Final[Mapping[str, Mapping[str, str]]] = {
    "none (Kafka's default)": {},
    "flush.ms=100": {"flush.ms": "100"},
    "flush.messages=1000": {"flush.messages": "1000"},
    "flush.messages=100": {"flush.messages": "100"},
    "flush.messages=1": {"flush.messages": "1"},
}
COMMIT: Final = "a commit of the sink"


class Figure(NamedTuple):
    """One row of a table; `figures` by column heading."""

    table: str
    what: str
    figures: Mapping[str, float | str]


# ---- writes ------------------------------------------------------------------------------------
def writes(directory: Path, random: Random) -> Iterator[Figure]:
    """Yield the throughput of writing blocks in sequential and in random order."""
    blocks = range(FILE_SIZE // BLOCK)
    shuffled = random.sample(blocks, len(blocks))
    with tempfile.NamedTemporaryFile(dir=directory) as file:
        descriptor = file.fileno()
        for start in blocks:
            os.pwrite(descriptor, bytes(BLOCK), start * BLOCK)
        os.fsync(descriptor)  # both orders find every block allocated
        for order, chosen in (("sequential", blocks), ("random", shuffled)):
            for syncs_each in (False, True):
                rate = _write(descriptor, chosen, syncs_each=syncs_each)
                when = "a sync after each block" if syncs_each else "one sync at the end"
                yield Figure("writes", f"{order}, {when}", {"MB/s": rate})


def _write(descriptor: int, blocks: range | list[int], *, syncs_each: bool) -> float:
    data, start, done = os.urandom(BLOCK), time.perf_counter(), 0
    for block in blocks:
        os.pwrite(descriptor, data, block * BLOCK)
        done += 1
        if syncs_each:
            os.fsync(descriptor)
            if time.perf_counter() - start > SECONDS:
                break
    os.fsync(descriptor)
    return done * BLOCK / 1e6 / (time.perf_counter() - start)


# ---- write-back --------------------------------------------------------------------------------
def write_back(longest: float) -> Iterator[Figure]:
    """Yield the time until the kernel has written half of 16 MiB of unsynced data."""
    for settings in WRITE_BACK:
        with _vm(settings), mounted("ext4") as disk:
            what = ", ".join(f"vm.{name}={value}" for name, value in settings.items())
            size = 16 << 20
            written = _written(disk)
            (disk.mount_point / "file").write_bytes(os.urandom(size))
            start = time.monotonic()
            while _written(disk) - written < size / 2 and time.monotonic() - start < longest:
                time.sleep(0.05)
            seconds = time.monotonic() - start
            took = f"{seconds:.1f}" if seconds < longest else f"more than {longest:.0f}"
            yield Figure("write-back", what or f"as configured ({_set_up()})", {"seconds": took})


def _set_up() -> str:
    names = sorted({name for settings in WRITE_BACK for name in settings})
    return ", ".join(f"{name}={(VM / name).read_text().strip()}" for name in names)


def _written(disk: Disk) -> int:
    """Return how many bytes have reached the device below a mounted image."""
    device = os.stat(disk.mount_point).st_dev
    fields = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat").read_text().split()
    return int(fields[6]) * 512


@contextmanager
def _vm(settings: Mapping[str, str]) -> Iterator[None]:
    """Change settings of the kernel temporarily."""
    before = {path: path.read_text() for path in VM.glob("dirty_*")}
    try:
        for name, value in settings.items():
            (VM / name).write_text(value)
        yield
    finally:
        for path, value in before.items():
            # Each ratio has a sibling in bytes. Setting one zeroes the other, and zero cannot be
            # written.
            if path.read_text() != value and value.strip() != "0":
                path.write_text(value)


# ---- flush policies ----------------------------------------------------------------------------
def flush_policies(directory: Path) -> Iterator[Figure]:
    """Yield the throughput of one writer under each policy."""
    for policy in (*POLICIES, COMMIT):
        with (
            tempfile.TemporaryDirectory(dir=directory) as root,
            _appender(root, policy) as append,
        ):
            append()
            start, records = time.perf_counter(), 0
            while time.perf_counter() - start < SECONDS:
                records += append()
            rate = records / (time.perf_counter() - start)
            figures = {"records/s": rate, f"appends/s of {BATCH}": rate / BATCH}
            yield Figure("flush policies", policy, figures)


@contextmanager
def _appender(root: str, policy: str) -> Iterator[Callable[[], int]]:
    """Yield a function that appends records under a policy and returns their number."""
    record = Record(None, bytes(1024), (), NOW)
    with LogManager.open(root, create=True) as manager:
        manager.create_topic("t", 1, POLICIES.get(policy, {}))
        log = manager.log("t", 0)
        builder = BatchBuilder()
        for _ in range(BATCH):
            builder.append(record)
        batch = builder.build()
        columns = InputColumns.from_records([record] * BATCH, now_ms=NOW)
        batches = encode_columns(columns, compression=CompressionType.NONE, batch_size=1 << 20)
        versions = itertools.count()

        def append() -> int:
            log.append_as_leader(batch)
            return BATCH

        def commit() -> int:
            version = next(versions)
            with Stager(manager.log_root, "app", version, 0) as stager:
                stager.append(TopicPartition("t", 0), batches)
                staged = stager.finish(rows=BATCH, checksum=0)
            manager.commits.commit(CommitIdentity("app", version), [staged])
            return BATCH

        yield commit if policy == COMMIT else append


# ---- losses ------------------------------------------------------------------------------------
def losses(kind: str, cuts: int, random: Random) -> Iterator[Figure]:
    """Yield the acknowledged records that power cuts of a file system destroy, by policy."""
    with mounted(kind, mib=IMAGE_MIB) as disk:
        for policy in (*POLICIES, COMMIT):
            lost: list[int] = []
            lost_ms: list[float] = []
            told = 0
            for number in range(cuts):
                acknowledged, seconds = _append_until_cut(disk, policy, number, random)
                found = in_child(lambda: _records_after(disk))
                lost.append(max(0, acknowledged - found))
                lost_ms.append(lost[-1] * seconds * 1000 / acknowledged)
                told += acknowledged
                shutil.rmtree(disk.root)
                os.sync()  # else the next power cut may undo part of the removal
            figures = {
                "power cuts": cuts,
                "records told": told,
                "most lost": max(lost),
                "median lost": statistics.median(lost),
                "most lost, in ms of appending": max(lost_ms),
            }
            yield Figure("losses", f"{policy}, {kind}", figures)


def _append_until_cut(disk: Disk, policy: str, number: int, random: Random) -> tuple[int, float]:
    """Return the records acknowledged before the power cut, and the seconds they took."""
    shared = mmap.mmap(-1, 8)
    parent, child = os.getpid(), os.fork()
    if child == 0:
        try:
            scratch.die_with(parent)
            local._boot_id = f"boot-{number}"
            with _appender(disk.root, policy) as append:
                count = 0
                while True:
                    count += append()
                    shared[:] = count.to_bytes(8, "little")
        finally:
            os._exit(0)
    while not any(shared):
        time.sleep(0.001)
    start = time.monotonic()
    time.sleep(random.uniform(0.5, 1.5))
    told = int.from_bytes(shared[:], "little")  # read first: a sync during the cut may lie
    seconds = time.monotonic() - start
    disk.cut_power(random.choice((JOURNAL_FLUSHED, JOURNAL_LOST)))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    disk.unmount()
    disk.mount()
    return told, seconds


def _records_after(disk: Disk) -> int:
    """Return how many records a process finds after a power cut."""
    local._boot_id = "boot-after"
    if not os.path.exists(disk.root):
        return 0
    with LogManager.open(disk.root) as manager:
        return manager.log("t", 0).log_end_offset if "t" in manager.topics() else 0


# ---- the command -------------------------------------------------------------------------------
def main() -> int:
    arguments = parse()
    random = Random(arguments.seed)
    scratch.end_in_order()
    if arguments.json:
        print(json.dumps(machine.facts()), flush=True)
    logging.disable(logging.CRITICAL)  # recovery warns about each truncation, the normal case here
    for figure in measure(arguments.directory, arguments.cuts, random):
        if arguments.json:
            print(json.dumps(figure._asdict()), flush=True)
        else:
            shown = ", ".join(f"{name} {_text(value)}" for name, value in figure.figures.items())
            print(f"{figure.table:<15} {figure.what:<60} {shown}", flush=True)
    return 0


def _text(value: float | str) -> str:
    return f"{value:,.1f}" if isinstance(value, float) else str(value)


def measure(directory: Path, cuts: int, random: Random) -> Iterator[Figure]:
    """Yield all tables that this machine can produce: some need root and images."""
    yield from writes(directory, random)
    yield from flush_policies(directory)
    for kind in ("ext4", "xfs"):
        if missing(kind) is None:
            yield from losses(kind, cuts, random)
    if missing("ext4") is None and os.access(VM / "dirty_expire_centisecs", os.W_OK):
        yield from write_back(longest=60)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.programs.reliability.disk", description=__doc__
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--cuts", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
