"""Compares our reading of the golden files with Kafka's and prints a table by folder.

    python -m tests.programs.compat.golden_table

Needs neither Java nor Maven, because the golden files include Kafka's answers. Recovery, rolls,
retention and the cleaner have tests of their own (listed in `tests/programs/compat/CASES.md`).
"""

import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from streamlog.partition.reader import LogReader
from streamlog.records.batch import LegacyRecordBatch, RecordBatch, read_batches
from streamlog.records.record import IsolationLevel, Record
from tests.support.batches import header_facts, record_facts
from tests.support.broker_disk import Disk, comparable
from tests.support.golden import GOLDEN, json_lines, unpack

__all__ = ["Row", "rows"]

FETCH_BYTES = 1 << 20
OF_LEGACY_NONE = {"sequence"}  # fields that v0 and v1 do not have


class Row(NamedTuple):
    """A folder with the numbers of compared batches and records, and of differences."""

    folder: str
    batches: int
    records: int
    differing: int

    def __str__(self) -> str:
        verdict = "pass" if self.differing == 0 else f"{self.differing} DIFFER"
        return f"{self.folder:<52} {self.batches:7} {self.records:8}  {verdict}"


def rows() -> Iterator[Row]:
    """Yield a row for each folder."""
    for part in ("A-batches", "B-legacy"):
        for path in sorted((GOLDEN / part).glob("*/batch.bin")):
            wanted = _expected(path.parent)
            yield _row(f"{part}/{path.parent.name}", read_batches(path.read_bytes()), wanted)
    for path in sorted((GOLDEN / "B-legacy").glob("*-log-dir*/*/")):
        yield _directory(f"B-legacy/{path.parent.name}", path, _expected(path.parent))
    with tempfile.TemporaryDirectory() as scratch:
        yield from _local(Path(scratch))
        for how in ("clean", "killed"):
            yield from _broker(how, Path(scratch) / how)


def _local(scratch: Path) -> Iterator[Row]:
    unpack("C-local/directories.tar.gz", scratch)
    unpack("C-local/records.tar.xz", scratch)
    for lines in sorted(scratch.glob("*/records.jsonl")):
        [path] = (each for each in lines.parent.iterdir() if each.is_dir())
        yield _directory(f"C-local/{lines.parent.name}", path, json_lines(str(lines)))


def _broker(how: str, scratch: Path) -> Iterator[Row]:
    """Yield rows of a broker's partitions, compared with consumers of both isolation levels."""
    scratch.mkdir()
    for name, partition in Disk.unpack(how, scratch).partitions.items():
        topic, _, number = name.rpartition("-")
        records = differing = 0
        for isolation in IsolationLevel:
            found = [
                comparable(
                    topic,
                    int(number),
                    each.offset,
                    each.timestamp or 0,
                    each.timestamp_type,
                    key=each.key,
                    value=each.value,
                    headers=each.headers,
                )
                for each in _consumed(partition.path, isolation)
            ]
            wanted = partition.seen(isolation.name.lower())
            records += len(wanted)
            differing += _differing(found, wanted)
        yield Row(f"C-broker/{how}-log.dir/{name}", 0, records, differing)


def _consumed(path: Path, isolation: IsolationLevel) -> Iterator[Record]:
    with LogReader.open(path) as reader:
        at, end = reader.log_start_offset, reader.log_end_offset
        if isolation is IsolationLevel.READ_COMMITTED:
            end = reader.last_stable_offset
        while at < end:
            info = reader.read(at, FETCH_BYTES, isolation=isolation)
            if info.next_offset == at:
                return
            yield from info.records()
            at = info.next_offset


def _directory(folder: str, path: Path, wanted: list[dict[str, Any]]) -> Row:
    """Return the row of a partition's directory, with every batch of every segment."""
    batches: list[RecordBatch | LegacyRecordBatch] = []
    for log in sorted(path.glob("*.log")):
        batches += read_batches(log.read_bytes())
    return _row(folder, batches, wanted)


def _row(
    folder: str, batches: Iterable[RecordBatch | LegacyRecordBatch], wanted: list[dict[str, Any]]
) -> Row:
    found_batches, found_records = [], []
    for at, batch in enumerate(batches):
        batch.check()
        found_batches.append(header_facts(batch, 0))
        found_records += [{"batch": at, **record_facts(each)} for each in batch.records()]
    headers = [line for line in wanted if line["kind"] == "batch"]
    records = [line for line in wanted if line["kind"] == "record"]
    differing = _differing(found_batches, headers) + _differing(found_records, records)
    return Row(folder, len(headers), len(records), differing)


def _differing(found: list[Any], wanted: list[Any]) -> int:
    """Return the number of differences in the facts that both sides have, except the position."""
    pairs = zip(found, wanted, strict=False)
    count = sum(not _is_same(one, other) for one, other in pairs)
    return count + abs(len(found) - len(wanted))


def _is_same(found: Any, wanted: Any) -> bool:
    if not isinstance(found, dict):
        return bool(found == wanted)
    told = found.keys() & wanted.keys() - {"position"} - OF_LEGACY_NONE
    return all(found[key] == wanted[key] for key in told)


def _expected(folder: Path) -> list[dict[str, Any]]:
    return json_lines(str(next(folder.glob("expect.jsonl*")).relative_to(GOLDEN)))


def main() -> int:
    """Print the table; return 1 if anything differs."""
    print(f"{'folder':<52} batches  records")
    table = []
    for row in rows():
        print(row, flush=True)
        table.append(row)
    total = Row(
        f"{len(table)} folders",
        sum(row.batches for row in table),
        sum(row.records for row in table),
        sum(row.differing for row in table),
    )
    print(total)
    return 1 if total.differing else 0


if __name__ == "__main__":
    sys.exit(main())
