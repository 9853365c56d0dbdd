"""What a topic refuses, found by the row before anything is staged.

A leader (`streamlog.records.validate`) sees batches and can only name offsets; here the row is
still known.
"""

import numpy as np
from numpy.typing import NDArray

from streamlog.arrow.sink_topics import TopicTarget
from streamlog.errors import (
    InvalidRecordError,
    InvalidTimestampError,
    MessageTooLargeError,
    UnknownTopicError,
)
from streamlog.records.columns import BinaryColumn
from streamlog.records.record import NO_TIMESTAMP
from streamlog.records.table import BatchTable

__all__ = ["RowCheck"]


class RowCheck:
    """Refuses the rows a topic cannot take, naming the first of them.

    `rows` is always int64[k], or None for all rows.
    """

    __slots__ = ("_first_row", "_now_ms", "_target")

    def __init__(self, target: TopicTarget, first_row: int, now_ms: int) -> None:
        self._target = target
        self._first_row = first_row
        self._now_ms = now_ms

    def keys(self, key: BinaryColumn | None, count: int, rows: NDArray[np.int64] | None) -> None:
        """Refuse rows without a key where the topic is compacted."""
        if "compact" not in self._target.config.cleanup_policy:
            return
        if key is None:
            missing = 0
        elif key.validity is None:
            return
        else:
            null = np.unpackbits(key.validity, count=count, bitorder="little") == 0
            found = np.flatnonzero(null if rows is None else null[rows])
            if found.size == 0:
                return
            missing = int(found[0])
        raise InvalidRecordError(
            f"{self._name(rows, missing)} has no key, but its topic {self._target.topic!r} is "
            "compacted",
            got="null",
            expected="a key",
        )

    def timestamps(self, timestamp: NDArray[np.int64], rows: NDArray[np.int64] | None) -> None:
        """Refuse rows outside the bounds a topic sets for CreateTime.

        Source: LogValidator.validateTimestamp.
        """
        config = self._target.config
        if config.message_timestamp_type != "CreateTime":
            return
        lowest = self._now_ms - config.message_timestamp_before_max_ms
        highest = self._now_ms + config.message_timestamp_after_max_ms
        chosen = timestamp if rows is None else timestamp[rows]
        if int(chosen.min()) >= lowest and int(chosen.max()) <= highest:
            return
        bad = ((chosen < lowest) | (chosen > highest)) & (chosen != NO_TIMESTAMP)
        if bad.any():
            index = int(bad.argmax())
            raise InvalidTimestampError(
                f"{self._name(rows, index)} has a timestamp that topic {self._target.topic!r} "
                "does not take",
                got=f"{int(chosen[index])} ms",
                expected=f"{lowest} to {highest}",
                hint="message.timestamp.before.max.ms and message.timestamp.after.max.ms of the "
                "topic set the bounds",
            )

    def partitions(self, partition: NDArray[np.int32], rows: NDArray[np.int64] | None) -> None:
        """Refuse rows that name a partition the topic does not have."""
        chosen = partition if rows is None else partition[rows]
        if int(chosen.max()) < self._target.partitions:
            return
        index = int((chosen >= self._target.partitions).argmax())
        raise UnknownTopicError(
            f"{self._name(rows, index)} names a partition that topic {self._target.topic!r} "
            "does not have",
            got=int(chosen[index]),
            expected=f"0 to {self._target.partitions - 1}",
            hint='leave the column partition out, df.drop("partition"), and the key decides; or '
            f"streamlog topics alter {self._target.topic} --partitions {int(chosen.max()) + 1}",
        )

    def sizes(self, table: BatchTable, rows: NDArray[np.int64] | None) -> None:
        """Refuse batches above the topic's limits; such a batch holds one record."""
        config = self._target.config
        limit = min(config.max_message_bytes, config.effective_segment_bytes)
        if int(table.size.max()) <= limit:
            return
        batch = int((table.size > limit).argmax())
        index = int(table.base_offset[batch])
        raise MessageTooLargeError(
            f"{self._name(rows, index)} is larger than topic {self._target.topic!r} takes",
            got=f"{int(table.size[batch])} bytes",
            expected=f"at most {limit}",
            hint=f"streamlog topics create {self._target.topic} --config max.message.bytes=…",
        )

    def not_decompressed(
        self, error: MessageTooLargeError, rows: NDArray[np.int64] | None
    ) -> MessageTooLargeError:
        """Return the error about a row that is too large to be compressed, by the row's number."""
        topic = self._target.topic
        return MessageTooLargeError(
            f"{self._name(rows, error.offset or 0)} is larger than a compressed batch of topic "
            f"{topic!r} may decompress to",
            got=error.got,
            expected=error.expected,
            hint=f"streamlog topics alter {topic} --config streamlog.max.decompressed.bytes=…",
        )

    def _name(self, rows: NDArray[np.int64] | None, index: int) -> str:
        return f"row {self._first_row + (index if rows is None else int(rows[index]))} of the task"
