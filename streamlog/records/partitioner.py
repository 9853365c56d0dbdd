"""The partition of a record: murmur2 of its key, or without a key the same partition for a while.

The hash is that of Kafka's Java client, so that all records of a key are in one partition whether
Kafka or Spark wrote them.
"""

import random
from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamlog.binary.arrays import as_source
from streamlog.errors import InvalidPartitionsError, InvalidRequestError
from streamlog.records.columns import BinaryColumn, column_arrays
from streamlog.records.slot import OK

__all__ = ["NO_PARTITION", "StickyPartitioner", "murmur2", "partition_for_keys"]

NO_PARTITION: Final = -1  # of a record without a key
DEFAULT_STICKY_BYTES: Final = 16384  # batch.size of Kafka's producer


def murmur2(key: bytes) -> int:
    """Return the hash of `key`, signed as Java's int.

    Source: org.apache.kafka.common.utils.Utils.murmur2.
    """
    from streamlog.binary import murmur2 as binary

    return (int(binary.murmur2(as_source(key), 0, len(key))) ^ 1 << 31) - (1 << 31)


def partition_for_keys(key: BinaryColumn, partitions: int) -> NDArray[np.int32]:
    """Choose the partition of each key.

    Args:
        key: The keys of n records.
        partitions: Number of partitions of the topic.

    Returns:
        int32[n], 0 to `partitions` - 1, or -1 if the key is null (an empty key is a key).

    Raises:
        InvalidPartitionsError: `partitions` is below 1.
        InvalidRequestError: The column's offsets do not fit its bytes.

    Source: BuiltInPartitioner.partitionForKey.
    """
    from streamlog.records import write_kernels

    if partitions < 1:
        raise InvalidPartitionsError("a topic needs at least one partition", got=partitions)
    chosen = np.empty(len(key), np.int32)
    if write_kernels.partition_keys(column_arrays(key, len(key)), partitions, chosen) != OK:
        raise InvalidRequestError("a column's offsets decrease, or exceed its bytes")
    return chosen


class StickyPartitioner:
    """Chooses partitions for records without a key: the same one until it has had its share.

    Spreading each record on its own would make many small batches. Like Kafka's producer this
    stays with a partition for `sticky_bytes` and then switches to another one at random.

    Args:
        partitions: Number of partitions of the topic.
        random_source: Source of the choice; repeatable if it is seeded.
        sticky_bytes: How many bytes a partition gets in a row.

    Source: BuiltInPartitioner, KIP-794.
    """

    __slots__ = ("_partition", "_partitions", "_random", "_sticky_bytes", "_taken")

    def __init__(
        self,
        partitions: int,
        random_source: random.Random,
        *,
        sticky_bytes: int = DEFAULT_STICKY_BYTES,
    ) -> None:
        if partitions < 1:
            raise InvalidPartitionsError("a topic needs at least one partition", got=partitions)
        self._partitions = partitions
        self._random = random_source
        self._sticky_bytes = sticky_bytes
        self._partition = random_source.randrange(partitions)
        self._taken = 0

    def partition(self, size: int) -> int:
        """Return the partition for the next record, which has `size` bytes."""
        if self._taken >= self._sticky_bytes:
            self._taken = 0
            if self._partitions > 1:  # any but the present one
                step = self._random.randrange(1, self._partitions)
                self._partition = (self._partition + step) % self._partitions
        self._taken += size
        return self._partition
