"""`assert_exactly_once` and its parts: compare the rows of a source with those of a sink.

Both sides are counted by key in one pass in Arrow; a million rows take a second or two. Wrong rows
are reported one by one, with everything known about their origin:

    AssertionError: not exactly once by value: 6 rows in the source, 7 in the sink
      lost   value='order 3'    source row 3 (orders-0 offset 3, batch 1)
      twice  value='order 4'    2 in the sink, 1 in the source: sink rows 4, 6
      alien  value='order 9'    not in the source: sink row 5
"""

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streamlog.errors import InvalidRequestError
from streamlog.testing.checkpoint import Checkpoint
from streamlog.testing.frames import hides_helper
from streamlog.testing.tables import Rows, as_table, comparable

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["assert_exactly_once", "assert_no_duplicates", "assert_no_loss"]
__tracebackhide__ = hides_helper

Key = str | Sequence[str] | None
CheckpointLocation = str | os.PathLike[str] | None

SHOWN_ROWS: Final = 10  # per kind
_SHOWN_PLACES: Final = 5
_PLACE: Final = ("topic", "partition", "offset")
_WRITTEN_BY_LOG: Final = (*_PLACE, "timestamp", "timestampType")


def assert_exactly_once(
    source: Rows, sink: Rows, key: Key = None, *, checkpoint: CheckpointLocation = None
) -> None:
    """Assert that each row occurs in the sink exactly as often as in the source.

        assert_exactly_once(orders, spark.read.parquet("table"), key="value")

    Args:
        source: A `Topic`, a Spark or pandas DataFrame, an Arrow table, or a list of dicts, rows,
            `Record`s or plain values (column `value`).
        sink: Likewise.
        key: The columns that identify a row, with the same names on both sides. Default: all
            common columns except those that a log adds.
        checkpoint: The checkpoint of the query, to report the batch of a lost row.

    Raises:
        AssertionError: Rows are lost, duplicated or not from the source; lists them.
        InvalidRequestError: A side has no rows or no such column.
    """
    _check("exactly once", source, sink, key, checkpoint, lost=True, extra=True)


def assert_no_loss(
    source: Rows, sink: Rows, key: Key = None, *, checkpoint: CheckpointLocation = None
) -> None:
    """Assert that each row occurs in the sink at least as often as in the source (at least once).

        assert_no_loss(orders, spark.read.parquet("table"), key="value")

    Arguments and errors are those of `assert_exactly_once`.
    """
    _check("without loss", source, sink, key, checkpoint, lost=True, extra=False)


def assert_no_duplicates(source: Rows, sink: Rows, key: Key = None) -> None:
    """Assert that no row occurs in the sink more often than in the source (at most once).

        assert_no_duplicates(orders, spark.read.parquet("table"), key="value")

    Arguments and errors are those of `assert_exactly_once`.
    """
    _check("without duplicates", source, sink, key, None, lost=False, extra=True)


def _check(
    claim: str,
    source: Rows,
    sink: Rows,
    key: Key,
    checkpoint: CheckpointLocation,
    *,
    lost: bool,
    extra: bool,
) -> None:
    comparison = _Comparison.of(source, sink, key, checkpoint)
    lines = [*(comparison.lost() if lost else ()), *(comparison.extra() if extra else ())]
    if lines:
        raise AssertionError(
            f"not {claim} by {', '.join(comparison.keys)}: {comparison.source.table.num_rows} rows"
            f" in the source, {comparison.sink.table.num_rows} in the sink\n" + "\n".join(lines)
        )


class _Side(NamedTuple):
    """One side: all its columns, and the key columns in types common to both sides."""

    table: "pa.Table"
    keys: "pa.Table"

    def rows_of(self, key: dict[str, Any]) -> list[int]:
        """Return the numbers of the first rows with a key."""
        import pyarrow.compute as pc

        found = None
        for name in self.keys.column_names:
            column, value = self.keys[name], key[name]
            same = pc.is_null(column) if value is None else pc.equal(column, value)
            found = same if found is None else pc.and_kleene(found, same)
        numbers: list[int] = pc.indices_nonzero(found).slice(0, _SHOWN_PLACES).to_pylist()
        return numbers

    def place(self, row: int) -> str:
        """Return the number of a row, with its position in a log if known."""
        if not self.is_of_log:
            return f"row {row}"
        topic, partition, offset = self.position(row)
        return f"row {row} ({topic}-{partition} offset {offset})"

    def position(self, row: int) -> tuple[str, int, int]:
        """Return topic, partition and offset of a row."""
        topic, partition, offset = (self.table[name][row].as_py() for name in _PLACE)
        return topic, partition, offset

    @property
    def is_of_log(self) -> bool:
        """Whether the rows have topic, partition and offset."""
        return set(_PLACE) <= set(self.table.column_names)


class _Comparison(NamedTuple):
    """Two sides, counted by key.

    Attributes:
        keys: The columns that identify a row.
        source: One side.
        sink: The other side.
        wrong: The keys with different counts: columns `key_0` … (values), `source` and `sink`
            (counts), in the order of their first rows.
        checkpoint: The checkpoint of the query, if given.
    """

    keys: list[str]
    source: _Side
    sink: _Side
    wrong: "pa.Table"
    checkpoint: Checkpoint | None

    @classmethod
    def of(
        cls, source: Rows, sink: Rows, key: Key, checkpoint: CheckpointLocation
    ) -> "_Comparison":
        import pyarrow as pa

        left, right = _alike(as_table(source), as_table(sink))
        keys = _choose_keys(left, right, key)
        pairs = [comparable(left[name], right[name], name=name) for name in keys]
        named = [f"key_{number}" for number in range(len(keys))]  # names of the user could collide
        here = _Side(left, pa.table([pair[0] for pair in pairs], names=named))
        there = _Side(right, pa.table([pair[1] for pair in pairs], names=named))
        known = None if checkpoint is None else Checkpoint(checkpoint)
        return cls(keys, here, there, _count_wrong(here.keys, there.keys), known)

    def lost(self) -> Iterator[str]:
        """Yield a line per key with too few rows in the sink."""
        import pyarrow.compute as pc

        rows = self.wrong.filter(pc.less(self.wrong["sink"], self.wrong["source"]))
        for row in rows.slice(0, SHOWN_ROWS).to_pylist():
            places = ", ".join(self._source_place(at) for at in self.source.rows_of(row))
            often = f"{row['sink']} of {row['source']} in the sink: " if row["sink"] else ""
            yield f"  lost   {self._name(row)}    {often}source {places}"
        yield from _more(rows.num_rows, "lost")

    def extra(self) -> Iterator[str]:
        """Yield a line per key with too many rows in the sink."""
        import pyarrow.compute as pc

        rows = self.wrong.filter(pc.greater(self.wrong["sink"], self.wrong["source"]))
        for row in rows.slice(0, SHOWN_ROWS).to_pylist():
            places = ", ".join(self.sink.place(at) for at in self.sink.rows_of(row))
            kind, often = "alien", "not in the source"
            if row["source"]:
                kind, often = "twice", f"{row['sink']} in the sink, {row['source']} in the source"
            yield f"  {kind}  {self._name(row)}    {often}: sink {places}"
        yield from _more(rows.num_rows, "too often")

    def _name(self, row: dict[str, Any]) -> str:
        return " ".join(f"{key}={row[f'key_{number}']!r}" for number, key in enumerate(self.keys))

    def _source_place(self, row: int) -> str:
        place = self.source.place(row)
        if self.checkpoint is None or not self.source.is_of_log:
            return place
        batch = _batch_of(self.checkpoint, *self.source.position(row))
        said = "in no planned batch" if batch is None else f"batch {batch}"
        return f"{place[:-1]}, {said})"


def _alike(source: "pa.Table", sink: "pa.Table") -> "tuple[pa.Table, pa.Table]":
    """Return both sides; an empty list, without columns, gets those of the other side."""
    import pyarrow as pa

    if source.num_columns == sink.num_columns == 0:
        source = pa.table({"value": pa.array([], pa.string())})
    if sink.num_columns == 0:
        return source, source.schema.empty_table()
    return (sink.schema.empty_table(), sink) if source.num_columns == 0 else (source, sink)


def _choose_keys(source: "pa.Table", sink: "pa.Table", key: Key) -> list[str]:
    both = [name for name in source.column_names if name in sink.column_names]
    if key is None:
        keys = [name for name in both if name not in _WRITTEN_BY_LOG]
    else:
        keys = [key] if isinstance(key, str) else list(key)
    if not keys or not set(keys) <= set(both):
        raise InvalidRequestError(
            "source and sink have no such column in common",
            got=", ".join(keys) or "no key",
            expected=f"one of {', '.join(both)}" if both else "a column with the same name in both",
            hint=f"the source has {source.column_names}, the sink has {sink.column_names}",
        )
    return keys


def _count_wrong(source: "pa.Table", sink: "pa.Table") -> "pa.Table":
    """Return the keys with different counts."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    def marked(keys: "pa.Table", *, is_source: bool) -> "pa.Table":
        rows = keys.num_rows
        keys = keys.append_column("source", pa.array(np.full(rows, is_source, np.int64)))
        keys = keys.append_column("sink", pa.array(np.full(rows, not is_source, np.int64)))
        return keys.append_column("row", pa.array(np.arange(rows, dtype=np.int64)))

    both = pa.concat_tables([marked(source, is_source=True), marked(sink, is_source=False)])
    names = source.column_names
    counted = both.group_by(names).aggregate([("source", "sum"), ("sink", "sum"), ("row", "min")])
    counted = counted.select([*names, "source_sum", "sink_sum", "row_min"])
    counted = counted.rename_columns([*names, "source", "sink", "row"])
    wrong = counted.filter(pc.not_equal(counted["source"], counted["sink"]))
    return wrong.sort_by("row")


def _batch_of(checkpoint: Checkpoint, topic: str, partition: int, offset: int) -> int | None:
    """Return the batch that the checkpoint plans an offset in, or None."""
    for batch in checkpoint.planned():
        for end in checkpoint.offsets(batch):
            ends = end.get(topic) if isinstance(end, dict) else None
            if isinstance(ends, dict) and offset < ends.get(str(partition), 0):
                return batch
    return None


def _more(count: int, what: str) -> Iterator[str]:
    if count > SHOWN_ROWS:
        yield f"  … and {count - SHOWN_ROWS} more keys {what}"
