"""A replica set of three roots with a topic, written through its leader."""

import os
import shutil

from streamlog.fs.log_root import LogRoot
from streamlog.records.record import Record
from streamlog.root.manager import LogManager
from streamlog.root.replica_roots import add_root

__all__ = ["ReplicaSet"]


class ReplicaSet:
    """Three log roots, `a`, `b` and `c` in a directory, and `orders` with a replica in each."""

    def __init__(self, home, partitions=1):
        self.home = str(home)
        self._open = []
        self.paths = [f"{home}/{name}" for name in "abc"]
        LogManager.open(self.paths[0], create=True).close()
        for path in self.paths[1:]:
            add_root(LogRoot.at(self.paths[0]), path)
        with LogManager.open(self.paths[0]) as manager:
            manager.create_topic("orders", partitions, replication_factor=3)

    @property
    def text(self):
        """The paths as an option: separated by commas."""
        return ",".join(self.paths)

    def append(self, values, *, partition=0, closes=True):
        """Append one batch; acknowledged by all replicas in sync.

        Args:
            values: The values, text.
            partition: The partition.
            closes: Close the log, which gives the followers the high watermark; otherwise theirs
                is one append late.
        """
        there = next(path for path in self.paths if os.path.exists(f"{path}/meta.properties"))
        manager = LogManager.open(there)
        records = [Record(None, value.encode(), (), 1_700_000_000_000) for value in values]
        manager.log("orders", partition).append(records)
        if closes:
            manager.close()
        else:
            self._open.append(manager)

    def lose(self, number):
        """Rename a root away."""
        os.rename(self.paths[number], self.paths[number] + "-away")

    def unmount(self, number):
        """Leave an empty directory, as an unmounted disk does."""
        self.lose(number)
        os.mkdir(self.paths[number])

    def bring_back(self, number):
        """Undo `lose` or `unmount`."""
        shutil.rmtree(self.paths[number], ignore_errors=True)
        os.rename(self.paths[number] + "-away", self.paths[number])
