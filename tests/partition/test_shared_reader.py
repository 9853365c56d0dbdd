"""One reader in the hands of several threads, as a `LogManager` gives it to all of them."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random

from streamlog.clock import ManualClock
from streamlog.fs.faults import FaultyFileSystem
from streamlog.fs.memory import MemoryFileSystem
from streamlog.partition.reader import LogReader
from streamlog.records.builder import BatchBuilder
from streamlog.records.record import Record
from streamlog.root.manager import LogManager
from streamlog.root.partition_log import PartitionLog

NOW = 1_700_000_000_000
PATH = "/logs/orders-0"


class InterferingFileSystem(FaultyFileSystem):
    """Lets another thread do something when a log is next read."""

    def __init__(self, inner: MemoryFileSystem) -> None:
        super().__init__(inner)
        self.work: Callable[[], None] | None = None
        self.threads: list[threading.Thread] = []

    def reading(self, name: str, path: str) -> None:
        work, is_due = self.work, name == "pread" and path.endswith(".log")
        if work is not None and is_due:
            self.work = None
            thread = threading.Thread(target=work)
            self.threads.append(thread)
            thread.start()
            thread.join(0.5)  # it cannot end where the reader is another thread's for now


def opened(fs: MemoryFileSystem) -> PartitionLog:
    return PartitionLog.open(PATH, fs=fs, clock=ManualClock(NOW), random=Random(1))


def test_a_reader_that_another_thread_refreshes_knows_its_transactions() -> None:
    builder = BatchBuilder(producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True)
    builder.append(Record(b"k", b"v", (), NOW))
    fs = MemoryFileSystem()
    fs.make_directory("/logs")
    interfering = InterferingFileSystem(fs)
    with opened(fs) as log, LogReader.open(PATH, fs=interfering) as reader:
        log.append([Record(b"k", b"v", (), NOW)])
        log.append_as_leader(builder.build())
        reader.refresh()

        def roll_and_refresh() -> None:
            log.roll()
            reader.refresh()  # which forgets what it knows of producers

        interfering.work = roll_and_refresh
        assert reader.last_stable_offset == 1
        (thread,) = interfering.threads
        thread.join(10)
        assert not thread.is_alive()


def test_threads_share_the_reader_of_a_manager_while_the_log_grows_and_rolls() -> None:
    fs = MemoryFileSystem()
    fs.make_directory("/logs")
    opened(fs).close()
    count = 300

    def follow(manager: LogManager) -> list[int]:
        reader, found = manager.reader("orders", 0), list[int]()
        while len(found) < count:
            info = reader.read(len(found), isolation="read_committed")
            found += [each.offset for each in info.records()]
        return found

    with (
        opened(fs) as log,
        LogManager.open("/logs", fs=fs, clock=ManualClock(NOW)) as manager,
        ThreadPoolExecutor(4) as threads,
    ):
        followers = [threads.submit(follow, manager) for _ in range(4)]
        for number in range(count):
            log.append([Record(b"%d" % number, b"v", (), NOW)])
            if number % 20 == 0:
                log.roll()
        assert [each.result(60) for each in followers] == [list(range(count))] * 4
