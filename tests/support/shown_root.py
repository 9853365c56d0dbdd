"""A root with something of everything that pages show."""

import json
from pathlib import Path

from streamlog.fs.log_root import LogRoot
from streamlog.records.record import Header, Record
from streamlog.root.manager import LogManager
from streamlog.root.readers import write_progress

NOW = 1_700_000_000_000
HOUR = 3_600_000
HOSTILE = "<script>alert('x')</script>&\"'"
PER_HOUR = 5
HOURS = 6


def make_shown_root(path: Path, *, newest_ms: int = NOW) -> str:
    """Make a root with topics `orders` (6 hours, a segment each), `state` and `hostile`."""
    with LogManager.open(path, create=True) as manager:
        manager.create_topic("orders", 2, {"segment.ms": HOUR // 2, "retention.ms": 24 * HOUR})
        manager.create_topic("state", 1, {"cleanup.policy": "compact", "segment.ms": HOUR // 2})
        manager.create_topic("hostile", 1)
        log = manager.log("orders", 0)
        for hour in range(HOURS):
            at = newest_ms - (HOURS - 1 - hour) * HOUR
            log.append([_order(hour * PER_HOUR + n, at) for n in range(PER_HOUR)])
        manager.log("orders", 1).append([_order(1000, newest_ms)])
        for at in (newest_ms - 2 * HOUR, newest_ms - HOUR, newest_ms):
            manager.log("state", 0).append([Record(key=b"k", value=b"v", timestamp=at)])
        manager.log("hostile", 0).append(
            [
                Record(
                    key=HOSTILE.encode(),
                    value=HOSTILE.encode(),
                    timestamp=newest_ms,
                    headers=[Header(HOSTILE, HOSTILE.encode())],
                ),
                Record(key=None, value=b"\xff\x00\xfe", timestamp=newest_ms),
                Record(key=b"", value=None, timestamp=newest_ms),
            ]
        )
    # The first two hours are finished.
    offsets = {"orders": {"0": 2 * PER_HOUR, "1": 1}}
    write_progress(LogRoot.at(str(path)), "billing", offsets, now_ms=newest_ms)
    return str(path)


def _order(number: int, timestamp: int) -> Record:
    value = {"id": number, "who": {"name": f"ann {number}"}, "paid": number % 2 == 0}
    return Record(
        key=b"customer-%d" % (number % 3),
        value=json.dumps(value).encode(),
        timestamp=timestamp,
        headers=[Header("trace", b"%d" % number)],
    )
