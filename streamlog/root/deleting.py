"""What must be true of records before they are deleted by offset, wherever they are."""

from collections.abc import Iterable

from streamlog.config.log_config import LogConfig
from streamlog.errors import PolicyViolationError, command_at
from streamlog.root.readers import Held
from streamlog.topic import TopicPartition

__all__ = ["check_deletable", "check_finished"]


def check_deletable(partition: TopicPartition, config: LogConfig, path: str) -> None:
    """Raise if a topic is compacted only: its records go when a later one has their key.

    Raises:
        PolicyViolationError: The topic's `cleanup.policy` is compact alone.

    Source: Partition.deleteRecordsOnLeader.
    """
    if config.cleanup_policy == {"compact"}:
        raise PolicyViolationError(
            f"records of {partition} cannot be deleted by offset",
            path=path,
            got="cleanup.policy=compact",
            expected="a cleanup.policy with delete",
            hint="append a record without a value for each key that is to go",
        )


def check_finished(
    held: Iterable[Held], start: int, *, log_start_offset: int, path: str, root: str
) -> None:
    """Raise if a recorded reader has not finished the records below an offset.

    Args:
        held: What is kept for each reader.
        start: The offset.
        log_start_offset: The present log start: what is below it is gone.
        path: The partition, for the error.
        root: The log root, for the hint.

    Raises:
        PolicyViolationError: A reader has not.
    """
    for each in held:
        if max(each.offset, log_start_offset) < start:
            raise PolicyViolationError(
                f"reader {each.reader} has not finished what is to be deleted",
                path=path,
                offset=each.offset,
                got=start,
                expected=f"at most {each.offset}",
                hint=f"--force, or: {command_at(root, f'readers forget {each.reader}')}",
            )
