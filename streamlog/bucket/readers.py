"""The recorded readers of a root in an object store.

    .streamlog/readers/<name>/<source>.json
    {"group": "billing", "committedMs": 1700000000000, "offsets": {"orders": {"0": 123}, …},
     "entry": 4711}

The content is that of `streamlog.root.readers`, which has the rules, and the number of the entry of
the journal up to which the reader knows the root. What later entries let go of is not deleted, so a
task that was planned on that state finds every object.

Each source of a query has an object of its own, named after its topics, so that recording progress
is one put and no reader waits for another.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Final, NamedTuple

from streamlog.binary.sealed import SealedValues
from streamlog.bucket.keys import READERS, reader_key
from streamlog.bucket.state import RootState
from streamlog.clock import Clock
from streamlog.config.server_config import ServerConfig
from streamlog.errors import CorruptCheckpointError, FileMissingError, InvalidRequestError
from streamlog.fs.api import FileSystem
from streamlog.fs.local import LocalFileSystem
from streamlog.root.readers import (
    MAX_READER_SIZE,
    Held,
    Holds,
    Reader,
    at_checkpoint,
    check_reader_name,
    parse_reader,
    reader_at,
)
from streamlog.store.api import ObjectStore
from streamlog.topic import TopicPartition

__all__ = ["BucketReaders", "RecordedReader", "oldest_entry"]

_CHECKPOINT: Final = "checkpoint"  # the source of a reader that was added by its checkpoint
_SUFFIX: Final = ".json"


class RecordedReader(NamedTuple):
    """A recorded reader, and the entry up to which it knows the root.

    Attributes:
        reader: The reader, with its present position.
        entry: The number of the entry; None for a reader that was added by its checkpoint.
        key: Its object.
    """

    reader: Reader
    entry: int | None
    key: str


class BucketReaders:
    """The recorded readers of a root.

    Args:
        store: The root's objects.
        clock: The clock.
        fs: The file system of checkpoints; local by default.
    """

    def __init__(self, store: ObjectStore, clock: Clock, *, fs: FileSystem | None = None) -> None:
        self._store, self._clock, self._fs = store, clock, fs or LocalFileSystem()

    # ---- writing -----------------------------------------------------------------------------
    def write_progress(self, group: str, offsets: Mapping[str, object], *, entry: int) -> None:
        """Record that a group has finished everything below `offsets`; one request.

        Args:
            group: The reader's name.
            offsets: The offsets, by topic.
            entry: The entry of the oldest state that the reader may still use.

        Raises:
            InvalidOptionError: The name is invalid.
            StorageError: The request failed.
        """
        check_reader_name(group)
        topics = "\0".join(sorted(offsets)).encode()
        source = hashlib.sha256(topics).hexdigest()[:16]
        self._write(reader_key(group, source), group, offsets, {"entry": entry})

    def add(self, name: str, checkpoint: str) -> Reader:
        """Record a query by its checkpoint, a local directory of the process that runs maintenance.

        Raises:
            InvalidOptionError: The name is invalid.
            InvalidRequestError: There is no checkpoint, or it holds no offsets of a log.
        """
        check_reader_name(name)
        reader = reader_at(self._fs, name, checkpoint, now_ms=self._clock.now_ms())
        key = reader_key(name, _CHECKPOINT)
        self._write(key, name, reader.position.to_json(), {"checkpoint": reader.checkpoint})
        return reader

    def _write(
        self, key: str, name: str, offsets: Mapping[str, object], more: Mapping[str, object]
    ) -> None:
        document = {"group": name, "committedMs": self._clock.now_ms(), "offsets": offsets, **more}
        self._store.put(key, (json.dumps(document, indent=1) + "\n").encode())

    def forget(self, name: str) -> None:
        """Remove a reader, so that nothing is kept for it.

        Raises:
            InvalidRequestError: No such reader is recorded.
        """
        check_reader_name(name)
        keys = [each.key for each in self._store.list(f"{READERS}{name}/")]
        if not keys:
            raise InvalidRequestError(f"no reader {name} is recorded", path=self._store.url)
        self._store.delete(keys)

    # ---- reading -----------------------------------------------------------------------------
    def recorded(self) -> list[RecordedReader]:
        """Return the recorded readers: one request, and one for each.

        Raises:
            CorruptCheckpointError: An object is malformed, so it is unknown what its reader needs.
        """
        found = []
        for each in self._store.list(READERS):
            try:
                content = self._store.get(each.key, max_size=MAX_READER_SIZE)
            except FileMissingError:  # forgotten after the listing
                continue
            found.append(self._parse(each.key, content))
        return found

    def _parse(self, key: str, content: bytes) -> RecordedReader:
        name, _, source = key.removeprefix(READERS).partition("/")
        path = f"{self._store.url}/{key}"
        if not source.endswith(_SUFFIX):
            raise CorruptCheckpointError(
                "no recorded reader", path=path, expected="NAME/SOURCE.json"
            )
        reader = parse_reader(name, content, path)
        values = SealedValues(json.loads(content), path)
        entry = None if values.is_null("entry") else values.integer("entry")
        if reader.checkpoint is not None:
            reader = at_checkpoint(self._fs, reader)
        return RecordedReader(reader, entry, key)

    def active(self, state: RootState) -> list[RecordedReader]:
        """Return the readers that are not silent."""
        minutes, now_ms = _config(state).offsets_retention_minutes, self._clock.now_ms()
        return [each for each in self.recorded() if not each.reader.is_silent(now_ms, minutes)]

    def holds(self, state: RootState, readers: list[RecordedReader]) -> Holds:
        """Return what readers keep from retention."""
        cap = _config(state).streamlog_readers_max_bytes
        return Holds(self._fs, [each.reader for each in readers], cap)

    def held(self, state: RootState, partition: TopicPartition) -> list[Held]:
        """Return what is kept of a partition for each reader that is not silent."""
        stretches = state.partitions[partition].stretches
        return self.holds(state, self.active(state)).of_topic(
            partition,
            state.topics[partition.topic].topic_id,
            [each.base_offset for each in stretches],
            [each.size for each in stretches],
        )


def oldest_entry(readers: list[RecordedReader]) -> int | None:
    """Return the entry of the oldest state that a reader may use, None without one."""
    return min((each.entry for each in readers if each.entry is not None), default=None)


def _config(state: RootState) -> ServerConfig:
    return ServerConfig.from_properties(state.config)
