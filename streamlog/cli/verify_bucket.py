"""`streamlog verify` of a root in an object store: reads and checks every batch that it names."""

from collections.abc import Iterator

from streamlog.bucket.read_roots import BucketReadRoots
from streamlog.cli.output import Progress
from streamlog.cli.verb import Settings
from streamlog.errors import StreamLogError
from streamlog.health.bucket import damage_in_bucket

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
        damage = damage_in_bucket(
            roots,
            is_deep=is_deep,
            max_decompressed_bytes=max_decompressed_bytes,
            advance=progress.advance,
        )
        yield from (error for _, error in damage)
