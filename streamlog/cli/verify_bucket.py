"""`streamlog verify` of a root in an object store: reads and checks every batch that it names."""

from collections.abc import Iterator

from streamlog.bucket.read_roots import BucketReadRoots, LiveBucketReader
from streamlog.cli.output import Progress
from streamlog.cli.verb import Settings
from streamlog.errors import StreamLogError
from streamlog.records.decode import Wanted, decode_pieces

__all__ = ["verify_bucket"]


def verify_bucket(
    settings: Settings,
    url: str,
    is_deep: bool,  # noqa: FBT001 - as the options of the command
    max_decompressed_bytes: int | None,
) -> Iterator[StreamLogError]:
    """Yield what is wrong with a root: entries of the journal, missing objects, damaged batches.

    Args:
        settings: The shared options.
        url: The root.
        is_deep: Whether to decode every record as well.
        max_decompressed_bytes: Limit of one decompressed batch; None: that of its topic.

    Raises:
        UnknownTopicError: There is no root.
        StorageError: A request failed.
    """
    roots = BucketReadRoots(url)
    partitions = roots.state().partitions
    total = sum(each.size for at in partitions.values() for each in at.stretches)
    with Progress(settings, f"verifying {url}", total) as progress:
        for partition in sorted(partitions):
            reader = roots.open(partition, max_decompressed_bytes=max_decompressed_bytes)
            yield from _check(reader, is_deep=is_deep, progress=progress)


def _check(
    reader: LiveBucketReader, *, is_deep: bool, progress: Progress
) -> Iterator[StreamLogError]:
    """Yield one error for each stretch that cannot be read."""
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
            progress.advance(stretch.size)
        except StreamLogError as error:
            yield error
