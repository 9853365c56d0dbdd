"""What an export asks of its target, whatever the format."""

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol, TypeAlias

import pyarrow as pa

from streamlog.exchange.positions import ExportPosition
from streamlog.topic import TopicPartition

__all__ = ["EpochBefore", "ExportTarget", "Exported", "ExportSteps"]

EpochBefore: TypeAlias = Callable[[TopicPartition, int], int]  # leader epoch before an offset


class Exported(NamedTuple):
    """What a target has already.

    Attributes:
        topic_ids: The ids of the topics; empty text if a topic has none.
        positions: How far each partition is.
    """

    topic_ids: Mapping[str, str]
    positions: Mapping[TopicPartition, ExportPosition]


class ExportSteps(NamedTuple):
    """What one run has written: files or commits, and their bytes if the target knows them."""

    files: int = 0
    size: int | None = None


class ExportTarget(Protocol):
    """Takes records, partition by partition in order of offsets.

    A target becomes complete in steps: a file, or a commit of a table. Each step holds its rows
    and how far the partitions are, so a run that dies at any time loses only an unfinished step.

    Attributes:
        unit: What a step is: `file` or `commit`.
    """

    unit: str

    def look(self, topic_ids: Mapping[str, str]) -> Exported:
        """Return what the target has, without changing anything.

        Args:
            topic_ids: The ids of the topics that would be written.

        Raises:
            InvalidRequestError: It was begun with another format or other columns.
            InconsistentTopicIdError: It has another topic of a name.
            CorruptDataError: What it says about itself cannot be read.
        """
        ...

    def begin(self, topic_ids: Mapping[str, str], epoch_before: EpochBefore) -> Exported:
        """Get ready for writing, and return what the target has.

        Args:
            topic_ids: The ids of the topics that will be written.
            epoch_before: Returns the leader epoch of the record before an offset, -1 if unknown.

        Raises:
            InvalidRequestError: As `look`.
            LockTimeoutError: Another export into this target runs.
            UnavailableError: The target cannot be written.
        """
        ...

    def write(self, partition: TopicPartition, batch: pa.RecordBatch) -> None:
        """Write the next records of a partition; with their offsets."""
        ...

    def end(self, partition: TopicPartition, offset: int) -> None:
        """Note that everything below an offset was written; complete the step if it is due."""
        ...

    def finish(self) -> ExportSteps:
        """Complete the last step."""
        ...

    def close(self) -> None:
        """Release the target, and remove an unfinished step; harmless if repeated."""
        ...
