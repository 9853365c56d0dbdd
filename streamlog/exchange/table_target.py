"""Exports into tables: rows and positions in one commit."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from streamlog.errors import InconsistentTopicIdError, InvalidOptionError, InvalidRequestError
from streamlog.exchange.batches import last_offset, pieces
from streamlog.exchange.column_types import added_fields
from streamlog.exchange.positions import ExportPosition
from streamlog.exchange.target import EpochBefore, Exported, ExportSteps
from streamlog.topic import TopicPartition

__all__ = ["TableTarget"]

_TYPED: Final = ("key", "value")  # columns that may be decoded
_ARROW_PER_FILE: Final = 2  # bytes of Arrow that become about one byte of Parquet, at least


class TableTarget(ABC):
    """Collects rows in memory, and commits them together with positions; see `ExportTarget`.

    Args:
        name: The table, for errors.
        schema: The columns of the table.
        file_size: Target size of the table's files in bytes. A commit has about twice as many bytes
            of Arrow, all of which are held in memory.
    """

    unit = "commit"

    def __init__(self, name: str, schema: pa.Schema, file_size: int) -> None:
        if not 1 <= file_size <= 1 << 40:
            raise InvalidOptionError(
                "invalid target file size", got=file_size, expected="1 byte to 1 TiB"
            )
        self._name, self._schema = name, schema
        self._file_size, self._commit_bytes = file_size, file_size * _ARROW_PER_FILE
        self._epoch_before: EpochBefore = lambda partition, offset: -1
        self._rows: list[pa.RecordBatch] = []
        self._size = self._commits = 0
        self._pending: dict[TopicPartition, int] = {}
        self._topic_ids: dict[str, str] = {}

    @abstractmethod
    def _load(self, topic_ids: Mapping[str, str] | None) -> Exported | None:
        """Return what the table has, None if there is no table.

        Args:
            topic_ids: The topics to look for; None: all that the table can tell.

        Raises:
            InvalidRequestError: It has other columns.
        """

    @abstractmethod
    def _commit(
        self,
        rows: pa.Table,
        positions: Mapping[TopicPartition, ExportPosition],
        topic_ids: Mapping[str, str],
    ) -> None:
        """Append rows and set positions, in one commit.

        Raises:
            FencedError: Another export has committed to the table meanwhile.
            UnavailableError: It failed, or its outcome is unknown; the next run finds out.
        """

    def look(self, topic_ids: Mapping[str, str]) -> Exported:
        """See `ExportTarget.look`."""
        return self._load(topic_ids) or Exported({}, {})

    def begin(self, topic_ids: Mapping[str, str], epoch_before: EpochBefore) -> Exported:
        """See `ExportTarget.begin`."""
        self._epoch_before = epoch_before
        there = self._load(topic_ids) or Exported({}, {})
        self._topic_ids = dict(topic_ids)
        return there

    def write(self, partition: TopicPartition, batch: pa.RecordBatch) -> None:
        """See `ExportTarget.write`."""
        for piece in pieces(batch, self._commit_bytes):
            self._rows.append(piece.select(self._schema.names))
            self._size += piece.nbytes
            self._pending[partition] = last_offset(piece) + 1
            if self._size >= self._commit_bytes:
                self._flush()

    def end(self, partition: TopicPartition, offset: int) -> None:
        """See `ExportTarget.end`."""
        if partition in self._pending:  # without rows there is nothing to commit
            self._pending[partition] = offset

    def finish(self) -> ExportSteps:
        """See `ExportTarget.finish`."""
        self._flush()
        return ExportSteps(self._commits)

    def close(self) -> None:
        """See `ExportTarget.close`."""
        self._rows, self._pending = [], {}

    def _flush(self) -> None:
        if not self._rows:
            return
        rows = pa.Table.from_batches(self._rows, self._schema)
        positions = {
            partition: ExportPosition(offset, self._epoch_before(partition, offset))
            for partition, offset in self._pending.items()
        }
        topics = {partition.topic for partition in positions}
        self._commit(rows, positions, {each: self._topic_ids.get(each, "") for each in topics})
        self._rows, self._size, self._pending = [], 0, {}
        self._commits += 1

    def _check_topic(self, topic: str, here: str, there: str) -> None:
        """Raise if a topic was created again since it was exported."""
        if here and there and here != there:
            raise InconsistentTopicIdError(
                f"topic {topic} was deleted and created again since it was exported",
                path=self._name,
                got=f"topic id {here}",
                expected=there,
                hint="export it to another table",
            )

    def _added_fields(self, there: pa.Schema) -> list[str]:
        """Return the fields of keys and values that a table does not have yet.

        Raises:
            InvalidRequestError: It has other columns, or other types of keys or values.
        """
        if set(there.names) != set(self._schema.names):
            raise InvalidRequestError(
                "the table has other columns than are exported",
                path=self._name,
                got=", ".join(there.names),
                expected=", ".join(self._schema.names),
                hint="pass --columns with those of the table, or export to another table",
            )
        added: list[str] = []
        for name in _TYPED:
            if name in there.names:
                old, new = there.field(name).type, self._schema.field(name).type
                try:
                    added += added_fields(old, new, name)
                except InvalidRequestError as error:
                    error.path = self._name
                    raise
        return added
