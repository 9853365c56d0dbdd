"""A streaming query without Spark: its reader asked in the order in which Spark asks.

Offsets go through JSON as Spark sends them, and a restart is a new reader, as it is with Spark.
"""

import json

from streamlog.clock import ManualClock
from streamlog.spark.reader import StreamLogStreamReader

__all__ = ["Query", "as_json"]


class Query:
    """What Spark does with a reader; `restart` keeps the checkpoint and nothing else.

    Args:
        root: The root to read; None: see the option `path`.
        clock: The reader's clock.
        **options: Options of the source, in lower case.
    """

    def __init__(self, root, clock=None, **options):
        self.options = options if root is None else {"path": root.path, **options}
        if not {"subscribepattern", "assign"} & options.keys():
            self.options.setdefault("subscribe", "orders")
        self.clock = clock or ManualClock()
        self.offsets = []  # the offset log of the checkpoint: ends of planned batches
        self.batches = []
        self.start = None
        self.restart()

    def restart(self, **options):
        self.options |= options
        self.reader = StreamLogStreamReader(self.options, clock=self.clock)
        self.limit = None

    def available_now(self):
        self.reader.prepareForTriggerAvailableNow()

    def plan(self):
        """Ask how far to go and write it down; False where there is nothing new."""
        if self.limit is None:
            self.limit = self.reader.getDefaultReadLimit()
        start = self.start or as_json(self.reader.initialOffset())
        end = as_json(self.reader.latestOffset(start, self.limit))
        as_json(self.reader.reportLatestOffset())
        if json.dumps(end) == json.dumps(self.start):
            return False
        self.offsets.append((self.start, end))
        return True

    def run(self):
        """Run the batch that was planned last."""
        before, end = self.offsets[-1]
        start = as_json(self.reader.initialOffset()) if before is None else before
        rows = []
        tasks = self.reader.partitions(start, end)
        for task in tasks:
            for batch in self.reader.read(task):
                rows += batch.to_pylist()
        self.batches.append([row["value"].decode() for row in rows])
        self.start = end
        return rows

    def trigger(self):
        """Run one trigger; return the values read, None where there was nothing to do."""
        if not self.plan():
            return None
        self.run()
        return self.batches[-1]

    def drain(self, at_most=50):
        """Run triggers until nothing is new; return the values of each."""
        first = len(self.batches)
        for _ in range(at_most):
            if self.trigger() is None:
                return self.batches[first:]
        raise AssertionError("the query does not come to an end")


def as_json(document):
    return json.loads(json.dumps(document))
