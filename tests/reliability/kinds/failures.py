"""Errors of the disk at every operation: of all numbers, once or from then on, and short ones."""

import contextlib
import errno
import gc
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Final

from streamlog.errors import StreamLogError
from streamlog.fs.api import FileSystem
from streamlog.fs.faults import READING, Fault, FaultyFileSystem, Moment
from streamlog.fs.local import LocalFileSystem
from streamlog.fs.memory import MemoryFileSystem
from tests.reliability.history import Crashed, History, Raised
from tests.reliability.invariants import Harm, Violation
from tests.reliability.kinds.survival import (
    SECOND_LIFE,
    THIRD_LIFE,
    Case,
    go_on,
    ground,
    perform,
    survive,
)
from tests.reliability.workloads import Workload

FREQUENT: Final = (errno.EIO, errno.ENOSPC)
RARE: Final = (
    *(errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE),
    *(errno.ENOMEM, errno.ELOOP, errno.ENAMETOOLONG, errno.ESTALE, errno.EINTR),
)
WHILE_READING: Final = (errno.EIO, errno.ESTALE, errno.EACCES, errno.EMFILE, errno.ENOMEM)
SYNCS: Final = {"sync"}


def errors(workload: Workload, random: Random) -> Iterator[Case]:
    """Each operation on the disk fails, once or from then on, with nothing, a part or all done."""
    for number, operation in _operations(workload):
        for code, moment in ((code, moment) for code in FREQUENT for moment in Moment):
            lasting = random.random() < 0.5
            fault = Fault(at=number, errno=code, moment=moment, is_lasting=lasting)
            yield from _fails(workload, fault, operation)


def rare_errors(workload: Workload, random: Random) -> Iterator[Case]:
    """Each operation that changes something fails with every other number that there is."""
    for number, operation in _operations(workload):
        for code in RARE:
            fault = Fault(at=number, errno=code, moment=random.choice([*Moment]))
            yield from _fails(workload, fault, operation, power_cuts=(random.random() < 0.5,))


def reading_errors(workload: Workload, random: Random) -> Iterator[Case]:
    """Each open, stat, list, pread and lock fails, once or from then on."""
    counting = _CountingReads(ground(workload))
    perform(workload, counting, [])
    for name in sorted(READING):
        for number in range(1, counting.reads[name] + 1):
            code, lasting = random.choice(WHILE_READING), random.random() < 0.5
            fault = Fault(at=number, operation=name, errno=code, is_lasting=lasting)
            yield from _fails(workload, fault, f"{name} #{number}", power_cuts=(False,))


def _operations(workload: Workload) -> Iterator[tuple[int, str]]:
    """Return the number and the text of each operation that comes with the trouble."""
    counting = FaultyFileSystem(ground(workload))
    before: list[int] = []
    perform(workload, counting, [], on_trouble=lambda: before.append(len(counting.operations)))
    return ((each.number, str(each)) for each in counting.operations[before[0] :])


class _CountingReads(FaultyFileSystem):
    """Counts what changes nothing."""

    def __init__(self, inner: FileSystem) -> None:
        super().__init__(inner)
        self.reads: Counter[str] = Counter()

    def reading(self, name: str, path: str) -> None:
        self.reads[name] += 1
        super().reading(name, path)


def _fails(
    workload: Workload,
    fault: Fault,
    operation: str,
    *,
    power_cuts: tuple[bool, ...] = (False, True),
) -> Iterator[Case]:
    memory = ground(workload)
    history: History = []
    try:
        perform(workload, FaultyFileSystem(memory, fault), history)
    except StreamLogError as error:
        history.append(Raised("opening", repr(error), is_typed=True))
    what = f"{errno.errorcode[fault.errno or 0]} {fault.moment.value} {operation}"
    what += ", and from then on" if fault.is_lasting else ""
    for lost_power in power_cuts:
        loss = {"loss": "everything"} if lost_power else {}
        left = memory.crash_clone(Random(0), power=lost_power, **loss)  # the process is gone
        before = [*history, Crashed(lost_power)]
        ending = ", then a power cut" if lost_power else ""
        yield Case(what + ending, survive(left, before, life=SECOND_LIFE))
    # A disk that refuses everything from then on refuses the note as well that says so.
    if not fault.is_lasting and any(f" {name} " in operation for name in SYNCS):
        left = memory.crash_clone(Random(0), power=False)
        found = _survive_and_lose_power(left, [*history, Crashed(lost_power=False)])
        yield Case(f"{what}, then a reopening, a flush and a power cut", found)


def _survive_and_lose_power(left: MemoryFileSystem, history: History) -> list[Violation]:
    """What another process flushed after a failed sync is there after a power cut."""
    found = go_on(left, history, life=SECOND_LIFE, finally_do=("flush",))
    lost = left.crash_clone(Random(0), power=True, loss="everything")
    return found + survive(lost, [*history, Crashed(lost_power=True)], life=THIRD_LIFE)


# ---- short reads and writes --------------------------------------------------------------------
def short_transfers(workload: Workload, random: Random) -> Iterator[Case]:
    """The kernel does a part of every read and write, as it may, on a real disk."""
    for name, is_short in (
        ("every read and write is", lambda: True),
        ("some reads and writes are", lambda: random.random() < 0.3),
        ("some reads and writes are", lambda: random.random() < 0.05),
    ):
        with _shortened(is_short, random):
            yield Case(f"{name} short", _work_on_a_real_disk(workload))


def _work_on_a_real_disk(workload: Workload) -> list[Violation]:
    with tempfile.TemporaryDirectory(prefix="short-") as directory:
        fs, root = LocalFileSystem(), f"{directory}/logs"
        history: History = []
        try:
            perform(workload, fs, history, root=root)
        except StreamLogError as error:
            return [Violation("it_goes_on", Harm.OTHER, f"opening: {error!r}")]
        gc.collect()  # what the process had open is closed with it
        return survive(fs, [*history, Crashed(lost_power=False)], life=SECOND_LIFE, root=root)


@contextlib.contextmanager
def _shortened(is_short: Callable[[], bool], random: Random) -> Iterator[None]:
    """Have the calls that the package makes do a part of what they are asked for."""
    read, read_into, write = os.pread, os.preadv, os.pwrite

    def part(source: Any) -> memoryview:
        view = memoryview(source).cast("B")
        shorter = len(view) > 1 and is_short()
        return view[: random.randrange(1, len(view))] if shorter else view

    os.pread = lambda fd, size, position: read(fd, len(part(bytes(size))), position)
    os.preadv = lambda fd, buffers, position: read_into(fd, [part(buffers[0])], position)
    os.pwrite = lambda fd, source, position: write(fd, part(source), position)
    try:
        yield
    finally:
        os.pread, os.preadv, os.pwrite = read, read_into, write
