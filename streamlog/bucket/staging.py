"""Staging in an object store: each task attempt writes one object, of any number of partitions.

The object appears when it is complete, under a name that no other attempt uses. Without a commit
that names it, it has no effect, and `maintain` collects it.
"""

import random as random_module
from collections.abc import Callable
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from streamlog.bucket.keys import staged_key
from streamlog.commits.identity import CommitIdentity, check_identity
from streamlog.commits.staging import StagedExtents, StagedFile, staged_name
from streamlog.errors import InvalidRequestError
from streamlog.records.builder import EncodedBatches
from streamlog.store.api import ObjectStore, Upload
from streamlog.topic import TopicPartition

__all__ = ["BucketStager"]


class BucketStager:
    """Writes the staged object of one task attempt. Use it as a context manager.

    Args:
        store: The root's objects.
        app: The app of the commit.
        version: The version of the commit.
        task: Index of the task, at least 0.
        find_topic_id: Returns the topic id of a partition, or raises `UnknownTopicError`.
        now_ms: The time in ms since 1970, by which the object is collected if it is not committed.
        random: Makes the name unique. `SystemRandom` by default, because forked workers would
            share the state of any other generator.

    Raises:
        InvalidRequestError: The app or version is invalid.
    """

    def __init__(
        self,
        store: ObjectStore,
        app: str,
        version: int,
        task: int,
        *,
        find_topic_id: Callable[[TopicPartition], str],
        now_ms: int,
        random: random_module.Random | None = None,
    ) -> None:
        check_identity(CommitIdentity(app, version))
        self._store, self._app, self._version, self._task = store, app, version, task
        name = staged_name(version, task, random or random_module.SystemRandom())
        self._name = f"{name}-{now_ms:020d}"
        self._extents = StagedExtents(self._write, find_topic_id)
        self._upload: Upload | None = None
        self._is_finished = False

    def append(self, topic_partition: TopicPartition, batches: EncodedBatches) -> None:
        """Add the next batches of a partition; see `Stager.append`."""
        self._check_open()
        self._extents.append(topic_partition, batches)

    def finish(self, *, rows: int, checksum: int | None) -> StagedFile:
        """Write all remaining batches, complete the object, and return its report.

        Args:
            rows: Number of rows of the task.
            checksum: Sum of their hashes modulo 2**64, over the user's columns; None if not
                computed.

        Raises:
            InvalidRequestError: The number of records differs from `rows`.
            StorageError: A request failed; the attempt is lost.
        """
        self._check_open()
        self._extents.finish(rows)
        name = ""
        if self._upload is not None:
            self._upload.close()
            name = self._name
        self._is_finished = True
        return StagedFile(
            app=self._app,
            version=self._version,
            task=self._task,
            name=name,
            size=self._extents.size,
            extents=tuple(self._extents.table),
            rows=rows,
            checksum=checksum,
        )

    def __enter__(self) -> "BucketStager":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._upload is not None and not self._is_finished:
            unfinished = kind or InvalidRequestError
            self._upload.__exit__(unfinished, error, trace)  # abandons the object
        self._is_finished = True

    def _write(self, buffer: NDArray[np.uint8]) -> None:
        if self._upload is None:
            self._upload = self._store.upload(staged_key(self._app, self._name))
        self._upload.write(buffer)

    def _check_open(self) -> None:
        if self._is_finished:
            raise InvalidRequestError("staged object is already finished")
