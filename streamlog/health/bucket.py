"""A root in an object store: reads and checks every batch that its journal names."""

from collections.abc import Callable, Iterator

from streamlog.bucket.read_roots import BucketReadRoots, LiveBucketReader
from streamlog.errors import StreamLogError
from streamlog.records.decode import Wanted, decode_pieces
from streamlog.topic import TopicPartition

__all__ = ["damage_in_bucket"]


def damage_in_bucket(
    roots: BucketReadRoots,
    *,
    is_deep: bool,
    max_decompressed_bytes: int | None = None,
    advance: Callable[[int], None] = lambda size: None,
) -> Iterator[tuple[TopicPartition, StreamLogError]]:
    """Yield what cannot be read: missing objects, damaged batches; one error for each stretch.

    Args:
        roots: The root.
        is_deep: Whether to decode every record as well.
        max_decompressed_bytes: Limit of one decompressed batch; None: that of its topic.
        advance: Called with the bytes of each stretch that is sound.

    Raises:
        UnknownTopicError: There is no root.
        StorageError: A request failed.
    """
    for partition in sorted(roots.state().partitions):
        reader = roots.open(partition, max_decompressed_bytes=max_decompressed_bytes)
        for error in _check(reader, is_deep=is_deep, advance=advance):
            yield partition, error


def _check(
    reader: LiveBucketReader, *, is_deep: bool, advance: Callable[[int], None]
) -> Iterator[StreamLogError]:
    for stretch in reader.state.stretches:
        offset = max(stretch.base_offset, reader.log_start_offset)
        try:
            while offset < stretch.end_offset:
                info = reader.read(offset, end_offset=stretch.end_offset)
                if is_deep:
                    wanted = Wanted(start_offset=offset, max_decompressed=info.max_decompressed)
                    for _ in decode_pieces(info.buffer, info.table, wanted, path=info.path):
                        pass
                offset = max(info.next_offset, offset + 1)
            advance(stretch.size)
        except StreamLogError as error:
            yield error
