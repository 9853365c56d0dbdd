"""Errors of the disk at every operation: every errno, once or permanently, and short transfers."""

import contextlib
import errno
import gc
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from random import Random
from typing import Any, Final

from streamlog.errors import StreamLogError
from streamlog.fs.api import FileSystem
from streamlog.fs.faults import READING, Fault, FaultyFileSystem, Moment
from streamlog.fs.local import LocalFileSystem
from tests.programs.reliability.history import Crashed, History, Raised
from tests.programs.reliability.invariants import Harm, Violation
from tests.programs.reliability.kinds.survival import (
    SECOND_LIFE,
    Case,
    ground,
    perform,
    survive,
    survive_and_lose_power,
)
from tests.programs.reliability.workloads import Workload

MOMENTS: Final = {
    errno.EIO: (Moment.BEFORE, Moment.TORN, Moment.AFTER),
    errno.ENOSPC: (Moment.BEFORE, Moment.TORN),
}
RARE: Final = (
    *(errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE),
    *(errno.ENOMEM, errno.ELOOP, errno.ENAMETOOLONG, errno.ESTALE, errno.EINTR),
)
WHILE_READING: Final = (errno.EIO, errno.ESTALE, errno.EACCES, errno.EMFILE, errno.ENOMEM)


class Ending(Enum):
    """What happens after the process with the error has ended."""

    CONTINUES = "another process continues"
    POWER_CUT = "a power cut"
    CONTINUES_AND_POWER_CUT = "another process continues, then a power cut"


def errors(workload: Workload, random: Random) -> Iterator[Case]:
    """Each operation fails, once or permanently, with nothing, a part or all of it done."""
    for number, operation in _operations(workload):
        for code, moment in ((code, moment) for code, some in MOMENTS.items() for moment in some):
            if moment is Moment.TORN and " pwrite " not in operation:
                continue  # other operations are atomic
            lasting = random.random() < 0.5
            fault = Fault(at=number, errno=code, moment=moment, is_lasting=lasting)
            yield from _fails(workload, fault, operation)


def rare_errors(workload: Workload, random: Random) -> Iterator[Case]:
    """Each modifying operation fails with every other errno."""
    for number, operation in _operations(workload):
        for code in RARE:
            fault = Fault(at=number, errno=code, moment=random.choice([*Moment]))
            ending = random.choice((Ending.CONTINUES, Ending.CONTINUES, Ending.POWER_CUT))
            yield from _fails(workload, fault, operation, endings=(ending,))


def reading_errors(workload: Workload, random: Random) -> Iterator[Case]:
    """Each open, stat, list, pread and lock fails, once or permanently."""
    counting = _CountingReads(ground(workload))
    perform(workload, counting, [])
    for name in sorted(READING):
        for number in range(1, counting.reads[name] + 1):
            code, lasting = random.choice(WHILE_READING), random.random() < 0.5
            fault = Fault(at=number, operation=name, errno=code, is_lasting=lasting)
            yield from _fails(workload, fault, f"{name} #{number}", endings=(Ending.CONTINUES,))


def _operations(workload: Workload) -> Iterator[tuple[int, str]]:
    """Return the number and the text of each operation on the disk after the workload's prefix."""
    counting = FaultyFileSystem(ground(workload))
    before: list[int] = []
    perform(workload, counting, [], on_trouble=lambda: before.append(len(counting.operations)))
    return ((each.number, str(each)) for each in counting.operations[before[0] :])


class _CountingReads(FaultyFileSystem):
    """Counts operations that modify nothing."""

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
    endings: Sequence[Ending] = (Ending.POWER_CUT, Ending.CONTINUES_AND_POWER_CUT),
) -> Iterator[Case]:
    memory = ground(workload)
    history: History = []
    try:
        perform(workload, FaultyFileSystem(memory, fault), history)
    except StreamLogError as error:
        history.append(Raised("opening", repr(error), is_typed=True))
    what = f"{errno.errorcode[fault.errno or 0]} {fault.moment.value} {operation}"
    what += ", permanently" if fault.is_lasting else ""
    for ending in endings:
        lost_power = ending is Ending.POWER_CUT
        loss = {"loss": "everything"} if lost_power else {}
        left = memory.crash_clone(Random(0), power=lost_power, **loss)  # the process is dead
        before = [*history, Crashed(lost_power)]
        if ending is Ending.CONTINUES_AND_POWER_CUT:
            found = survive_and_lose_power(left, before)
        else:
            found = survive(left, before, life=SECOND_LIFE)
        yield Case(f"{what}, then {ending.value}", found)


# ---- short reads and writes --------------------------------------------------------------------
def short_transfers(workload: Workload, random: Random) -> Iterator[Case]:
    """The kernel transfers only a part in every read and write of a real disk, as it may."""
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
            return [Violation("work_continues", Harm.OTHER, f"opening: {error!r}")]
        gc.collect()  # closed as if the process had ended
        return survive(fs, [*history, Crashed(lost_power=False)], life=SECOND_LIFE, root=root)


@contextlib.contextmanager
def _shortened(is_short: Callable[[], bool], random: Random) -> Iterator[None]:
    """Truncate the transfers that the package requests."""
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
