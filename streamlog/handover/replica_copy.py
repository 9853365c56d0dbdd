"""A broker gets a copy of one root of a replica set: the copy leaves the set.

A root that is listed where it lies is refused. Its set would elect another leader and go on, and
the broker's records would be lost when the root came back.
"""

import contextlib

from streamlog.errors import FileMissingError, InvalidRequestError, UnavailableError
from streamlog.fs.files import remove_tree
from streamlog.fs.log_root import LogRoot
from streamlog.handover.plan import remove_file
from streamlog.partition.reader import LogReader
from streamlog.replication.register_file import RegisterFile
from streamlog.replication.root_set import read_root_list
from streamlog.topic import TopicPartition, parse_partition_directory

__all__ = ["check_copy", "is_copy", "leave_set"]


def is_copy(root: LogRoot) -> bool:
    """Return whether a root belonged to a replica set and lies elsewhere now.

    Raises:
        InvalidRequestError: It belongs to the set.
        CorruptCheckpointError: Its list of log roots is damaged.
    """
    roots = read_root_list(root)
    if roots is None:
        return root.fs.stat(root.replication) is not None  # an interrupted handover
    if any(root.fs.resolve(each.path) == root.path for each in roots.roots):
        raise InvalidRequestError(
            "log root belongs to a replica set, whose other roots would go on without it",
            path=root.path,
            got=f"a set of {len(roots.roots)} log roots",
            expected="a copy of the root, elsewhere",
            hint=f"stop its writers, then: cp -a {root.path} COPY; "
            "streamlog --path COPY handover --to-kafka",
        )
    return True


def check_copy(root: LogRoot) -> None:
    """Check that each replicated partition is there, with committed records only.

    Raises:
        InvalidRequestError: A partition is not in this root, or has records that the other replicas
            may lack.
        StreamLogError: A register or a partition cannot be read.
    """
    for name in _names(root):
        partition = parse_partition_directory(name)
        accepted = None if partition is None else RegisterFile(root, name).read()
        if partition is not None and accepted is not None and accepted.state is not None:
            _check_partition(root, partition)


def _names(root: LogRoot) -> list[str]:
    """Return the names of the registers in a root."""
    with contextlib.suppress(FileMissingError):
        return [each for each in root.fs.list(root.replication) if not each.startswith(".")]
    return []


def _check_partition(root: LogRoot, partition: TopicPartition) -> None:
    path = root.partition(partition)
    if root.fs.stat(path) is None:
        raise InvalidRequestError(
            f"topic {partition.topic} is incomplete: other log roots hold this partition",
            path=path,
            expected="a replica of each partition in one root",
            hint="reassign the partition to this root, then copy the root again",
        )
    with LogReader.open(path, fs=root.fs) as reader:
        if reader.high_watermark < reader.log_end_offset:
            raise UnavailableError(
                "the other replicas may not hold the last records of this one",
                path=path,
                got=f"high watermark {reader.high_watermark}",
                expected=f"{reader.log_end_offset}, the log end",
                hint="run on the replica set: streamlog replicate --once; then copy the root again",
            )


def leave_set(root: LogRoot) -> None:
    """Remove the list of log roots and the state of the replicas; repeat it if interrupted.

    The list goes first: without it the partitions cannot be written until their registers go.
    """
    remove_file(root.fs, root.replica_roots)
    remove_tree(root.fs, root.replication)
    root.fs.sync_directory(root.state)
