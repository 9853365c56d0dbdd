"""One line of what a verb looked at and found, for a person: silence would look like a failure."""

from streamlog.cli.output import human_size
from streamlog.errors import StreamLogError
from streamlog.fs.api import FileKind, FileSystem
from streamlog.health.verify import size_of_logs
from streamlog.root.topics import find_partitions

__all__ = ["counted", "looked_at"]


def counted(count: int, one: str) -> str:
    """Return a number with its noun: `1 partition`, `3 partitions`."""
    return f"{count} {one}" if count == 1 else f"{count} {one}s"


def looked_at(fs: FileSystem, path: str) -> str:
    """Return what lies at a path, as `2 topics, 7 partitions, 12.3 MiB`.

    Args:
        fs: Where it is.
        path: A log root, a partition's directory, or a file.
    """
    try:
        found = fs.stat(path)
        if found is not None and found.kind is FileKind.FILE:
            return human_size(found.size)
        topics = find_partitions(fs, path)
        partitions = counted(sum(map(len, topics.values())), "partition")
        size = human_size(size_of_logs(fs, path))
    except StreamLogError:
        return "what is there"  # changed since; what is wrong with it has been said
    return f"{counted(len(topics), 'topic')}, {partitions}, {size}"
