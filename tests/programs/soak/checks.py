"""The final checks of the soak.

events, copies   the collecting query saw exactly what producers wrote: every acknowledged
                 append once and complete, and of each life at most one unacknowledged append
state            the collecting query saw each acknowledged record once, at its offset; the
                 last value it saw of each key is the one in the log and the one that the
                 tailing reader has
disk             the size is within the limits of the settings, and there are no leftovers
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from streamlog.fs.files import NAME_IS_DURABLE
from streamlog.fs.local import LocalFileSystem
from streamlog.health.findings import Finding
from streamlog.health.verify import verify
from streamlog.partition.reader import LogReader
from tests.programs.soak.records import (
    COPIES,
    EVENTS,
    PARTITIONS,
    STATE,
    VALUE_SIZE,
    Name,
    records_of,
)
from tests.programs.soak.workers import Acknowledged, acknowledged_by, root_of

LEFTOVERS: Final = (".deleted", ".cleaned", ".swap", ".tmp")

Last = dict[str, str | None]


class BrokenError(AssertionError):
    """A guarantee was violated."""


class Seen(NamedTuple):
    """A record as the collecting query saw it."""

    topic: str
    partition: int
    offset: int
    key: str | None
    value: str | None


def check(directory: Path, producers: int) -> int:
    """Check the results of readers; return the number of records.

    Raises:
        BrokenError: A guarantee was violated.
    """
    seen = list(read_seen(directory / "seen"))
    places = {(each.topic, each.partition, each.offset) for each in seen}
    if len(places) != len(seen):
        raise BrokenError(f"{len(seen) - len(places)} records were seen more than once")
    acknowledged = [each for one in range(producers) for each in acknowledged_by(directory, one)]
    check_events(
        [each.value or "" for each in seen if each.topic == COPIES],
        [each.name for each in acknowledged if each.topic == EVENTS],
    )
    state = {(each.partition, each.offset): each for each in seen if each.topic == STATE}
    check_state(state, [each for each in acknowledged if each.topic == STATE])
    check_last(directory, state.values())
    return len(seen)


def read_seen(directory: Path) -> Iterator[Seen]:
    """Yield what the collecting query saw, batch by batch."""
    for path in sorted(directory.glob("*.json"), key=lambda path: int(path.stem)):
        with path.open() as lines:
            for line in lines:
                yield Seen(*json.loads(line))


def check_events(values: list[str], acknowledged: list[Name]) -> None:
    """Raise unless the copies are exactly the appended rows, each append once and complete."""
    rows: dict[Name, list[str]] = defaultdict(list)
    for value in values:
        rows[Name.parse(value.split(maxsplit=1)[0])].append(value)
    for name, found in rows.items():
        expected = [(record.value or b"").decode() for record in records_of(EVENTS, name)]
        if sorted(found) != sorted(expected):
            raise BrokenError(f"append {name}: {len(found)} of {len(expected)} rows were copied")
    lost = set(acknowledged) - rows.keys()
    if lost:
        raise BrokenError(f"{len(lost)} acknowledged appends were not copied: {min(lost)}")
    refuse_many_unknown(rows.keys() - set(acknowledged))


def check_state(state: dict[tuple[int, int], Seen], acknowledged: list[Acknowledged]) -> None:
    """Raise unless each acknowledged record of the compacted topic was seen at its offset."""
    known = set()
    for append in acknowledged:
        for row, record in enumerate(records_of(STATE, append.name)):
            place = append.partition, append.base_offset + row
            texts = [None if each is None else each.decode() for each in (record.key, record.value)]
            found = state.get(place)
            if found is None or [found.key, found.value] != texts:
                raise BrokenError(f"{append}, row {row}: written {texts}, seen {found}")
            known.add(place)
    values = (state[place].value for place in state.keys() - known)
    refuse_many_unknown({Name.parse(each.split(maxsplit=1)[0]) for each in values if each})


def refuse_many_unknown(names: Iterable[Name]) -> None:
    """Raise if a life has more unacknowledged appends than the one it died in."""
    lives = [(name.producer, name.life) for name in names]
    if len(set(lives)) != len(lives):
        raise BrokenError(f"unexpected unacknowledged appends: {sorted(names)}")


def check_last(directory: Path, state: Iterable[Seen]) -> None:
    """Raise unless log and tailing reader have the value of each key that was seen last."""
    expected: list[Last] = [{} for _ in range(PARTITIONS)]
    for each in sorted(state, key=lambda seen: seen.offset):
        expected[each.partition][each.key or ""] = each.value
    tailed: list[Last] = json.loads((directory / "tail.json").read_text())
    for partition in range(PARTITIONS):
        found = last_values(root_of(directory) / f"{STATE}-{partition}")
        for whose, there in ("log", found), ("tailing reader", tailed[partition]):
            if alive(there) != alive(expected[partition]):
                wrong = sorted(alive(there).items() ^ alive(expected[partition]).items())
                raise BrokenError(f"the {whose} has a different last value: {wrong[:4]}")


def alive(last: Last) -> dict[str, str]:
    """Return the values of keys without tombstones, which compaction removes at some time."""
    return {key: value for key, value in last.items() if value is not None}


def last_values(path: Path) -> Last:
    """Return the last value of each key that a partition has, tombstones included."""
    last: Last = {}
    with LogReader.open(path) as log:
        at = log.log_start_offset
        while at < log.log_end_offset:
            info = log.read(at)
            for record in info.records():
                value = None if record.value is None else record.value.decode()
                last[(record.key or b"").decode()] = value
            at = info.next_offset
    return last


# ---- the disk ------------------------------------------------------------------------------------
def check_disk(directory: Path, bound: int) -> int:
    """Check that the root is sound, has no leftovers, and is within its size limit.

    Returns:
        Its bytes.
    """
    root, findings = root_of(directory), list[Finding]()
    verify(LocalFileSystem(), str(root), findings.append)
    if findings:
        raise BrokenError(f"{len(findings)} findings: {findings[0]}")
    left = [path.name for path in root.rglob("*") if path.name.endswith(LEFTOVERS)]
    for parts in (".streamlog", "staging"), (".streamlog", "commits", "pending"):
        found = root.joinpath(*parts).rglob("*")
        left += [path.name for path in found if path.is_file() and path.name != NAME_IS_DURABLE]
    if left:
        raise BrokenError(f"{len(left)} leftovers: {sorted(left)[:4]}")
    size = logs_size(root)
    if size > bound:
        raise BrokenError(f"{size} bytes on disk, at most {bound} expected")
    return size


def logs_size(root: Path) -> int:
    """Return the bytes of all log files, including files about to be removed."""
    size = 0
    for path in root.glob("*-*/*.log*"):
        try:
            size += path.stat().st_size
        except FileNotFoundError:  # just removed or renamed
            continue
    return size


def live_size(keys: int) -> int:
    """Return the approximate bytes of one record per key, including batch headers."""
    return keys * 2 * VALUE_SIZE
