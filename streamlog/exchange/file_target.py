"""Exported files in a directory or an object store; see `positions` for their names.

`_streamlog.json` beside them says what the export consists of: format, columns, topics and their
ids. It is written before the first file of a topic.
"""

import io
import json
from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from streamlog.arrow.schema import ERROR
from streamlog.errors import (
    CorruptCheckpointError,
    FencedError,
    InconsistentTopicIdError,
    InvalidOptionError,
    InvalidRequestError,
)
from streamlog.exchange.batches import last_offset, offsets_of, pieces
from streamlog.exchange.export_columns import ExportColumns
from streamlog.exchange.formats import FILE_FORMATS, FileShape, FormatWriter
from streamlog.exchange.places import ExportPlace, NewFile
from streamlog.exchange.positions import (
    NOTE,
    UNFINISHED,
    ExportedFile,
    ExportPosition,
    file_front,
    positions_in,
)
from streamlog.exchange.streams import buffered
from streamlog.exchange.target import EpochBefore, Exported, ExportSteps
from streamlog.topic import TopicPartition

__all__ = ["DEFAULT_FILE_SIZE", "FileTarget", "Note"]

DEFAULT_FILE_SIZE: Final = 128 << 20
_NOTE_SIZE_MAX: Final = 16 << 20
_VERSION: Final = 1


class Note:
    """What `_streamlog.json` says.

    Attributes:
        shape: Format, columns and encoding of all files.
        topic_ids: The ids of the topics; empty text if a topic has none.
    """

    def __init__(self, shape: FileShape, topic_ids: Mapping[str, str]) -> None:
        self.shape, self.topic_ids = shape, dict(topic_ids)

    def encode(self) -> bytes:
        """Return the content of the file."""
        content = {
            "version": _VERSION,
            "format": self.shape.format,
            "encoding": self.shape.encoding,
            "columns": list(self.shape.columns),
            **({"decoded": dict(self.shape.decoded)} if self.shape.decoded else {}),
            "topics": dict(sorted(self.topic_ids.items())),
        }
        return json.dumps(content, indent=2).encode() + b"\n"

    @classmethod
    def decode(cls, content: bytes, path: str) -> "Note":
        """Return what the file says.

        Raises:
            CorruptCheckpointError: It is not what `encode` writes.
        """
        try:
            found = json.loads(content)
            if found["version"] != _VERSION:
                raise ValueError(f"version {found['version']}")
            columns, topics = found["columns"], found["topics"]
            decoded = found.get("decoded", {})
            texts = [found["format"], found["encoding"], *columns, *topics, *topics.values()]
            texts += [*decoded, *decoded.values()]
            if not all(isinstance(each, str) for each in texts):
                raise ValueError("a field that is no text")
            names = ",".join(columns)
            has_errors = ERROR in columns
            shape = FileShape.of(found["format"], names, found["encoding"], is_decoded=has_errors)
            return cls(shape._replace(decoded=tuple(decoded.items())), topics)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            what = f"{type(error).__name__}: {error}"[:200]
        except InvalidOptionError as error:
            what = error.sentence
        raise CorruptCheckpointError(
            "the file that describes an export cannot be read",
            path=path,
            got=what,
            expected=f"version {_VERSION}, format, encoding, columns and topics",
            hint="export into another directory",
        )


class _Open:
    """The file that is being written."""

    def __init__(self, file: NewFile, partition: TopicPartition, first: int) -> None:
        self.file, self.partition, self.first = file, partition, first
        self.last = first
        self.stream: io.BufferedWriter = buffered(file.stream)
        self.writer: FormatWriter | None = None

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self.stream.tell()


class FileTarget:
    """Writes ndjson, CSV or Parquet files; see `ExportTarget`.

    Args:
        place: Where to.
        shape: Format, columns and encoding.
        columns: The columns that will be written.
        file_size: Size in bytes at which a file is complete and the next one begins. A file may
            exceed it by one row group of Parquet, or one batch of records.
    """

    unit = "file"

    def __init__(
        self,
        place: ExportPlace,
        shape: FileShape,
        columns: ExportColumns,
        file_size: int = DEFAULT_FILE_SIZE,
    ) -> None:
        if not 1 <= file_size <= place.largest:
            raise InvalidOptionError(
                "invalid target file size", got=file_size, expected=f"1 to {place.largest} bytes"
            )
        self._place, self._file_size = place, file_size
        self._shape, self._columns = shape.with_types(columns), columns
        self._epoch_before: EpochBefore = lambda partition, offset: -1
        self._open: _Open | None = None
        self._next: dict[TopicPartition, int] = {}  # what the names say, by this process
        self._files = self._size = 0

    # ---- what is there -------------------------------------------------------------------------
    def look(self, topic_ids: Mapping[str, str]) -> Exported:
        """See `ExportTarget.look`."""
        there = self._look()
        for topic, topic_id in topic_ids.items():
            known = there.topic_ids.get(topic, "")
            if known and topic_id and known != topic_id:
                raise InconsistentTopicIdError(
                    f"topic {topic} was deleted and created again since it was exported",
                    path=self._place.name,
                    got=f"topic id {topic_id}",
                    expected=known,
                    hint="export it to another target",
                )
        return there

    def _look(self) -> Exported:
        note = self._note()
        files = self._exported()
        if note is None:
            if files:
                raise InvalidRequestError(
                    "exported files without the file that describes them",
                    path=f"{self._place.name}/{NOTE}",
                    got=f"{files[0].name} and {len(files) - 1} more",
                    hint="put it back, or export into another directory",
                )
            return Exported({}, {})
        if note.shape != self._shape:
            raise InvalidRequestError(
                "the target holds an export in another shape",
                path=self._place.name,
                got=_shown(self._shape),
                expected=_shown(note.shape),
                hint="pass the same options and schemas, or export into another directory",
            )
        return Exported(note.topic_ids, positions_in(files, where=self._place.name))

    def _note(self) -> Note | None:
        content = self._place.read(NOTE, max_size=_NOTE_SIZE_MAX)
        return None if content is None else Note.decode(content, f"{self._place.name}/{NOTE}")

    def _exported(self) -> list[ExportedFile]:
        found = (ExportedFile.parse(each) for each in self._place.names())
        return [each for each in found if each is not None]

    def begin(self, topic_ids: Mapping[str, str], epoch_before: EpochBefore) -> Exported:
        """See `ExportTarget.begin`."""
        self._place.begin(UNFINISHED)
        self._epoch_before = epoch_before
        there = self.look(topic_ids)
        merged = {**there.topic_ids, **{k: v for k, v in topic_ids.items() if v}}
        merged = {**dict.fromkeys(topic_ids, ""), **merged}
        if merged != there.topic_ids:
            self._place.write(NOTE, Note(self._shape, merged).encode())
        self._next = {partition: at.offset for partition, at in there.positions.items()}
        return Exported(merged, there.positions)

    # ---- writing -------------------------------------------------------------------------------
    def write(self, partition: TopicPartition, batch: pa.RecordBatch) -> None:
        """See `ExportTarget.write`."""
        for piece in pieces(batch, self._file_size):
            current = self._current(partition, int(offsets_of(piece)[0]))
            assert current.writer is not None
            current.writer.write(partition, piece)
            current.last = last_offset(piece)
            if current.size >= self._file_size:
                self._complete(current.last)

    def _current(self, partition: TopicPartition, first: int) -> _Open:
        """Return the open file; begin one if there is none."""
        if self._open is None:
            # The offsets before the first record that have no record belong to this file too.
            first = self._next.get(partition, first)
            file = self._place.create(file_front(partition, first))
            current = self._open = _Open(file, partition, first)
            make = FILE_FORMATS[self._shape.format]
            current.writer = make(current.stream, self._shape, self._columns, self._file_size)
        return self._open

    def end(self, partition: TopicPartition, offset: int) -> None:
        """See `ExportTarget.end`."""
        if self._open is not None:
            self._complete(offset - 1)

    def _complete(self, last: int) -> None:
        """Give the open file its name."""
        current, place = self._open, self._place
        assert current is not None and current.writer is not None
        current.writer.close()
        partition = current.partition
        named = ExportedFile(
            *partition,
            current.first,
            last,
            self._epoch_before(partition, last + 1),
            self._shape.format,
        )
        if place.is_shared:
            self._check_alone(partition, current.first)
        size = current.size
        current.file.finish(named.name)
        self._open = None
        self._next[partition] = last + 1
        self._files += 1
        self._size += size

    def _check_alone(self, partition: TopicPartition, first: int) -> None:
        """Raise if another export has written files of a partition meanwhile."""
        files = [each for each in self._exported() if each[:2] == tuple(partition)]
        found = positions_in(files, where=self._place.name).get(partition, ExportPosition(first))
        if found.offset != first:
            raise FencedError(
                "another export has written into the target meanwhile",
                path=self._place.name,
                offset=found.offset,
                expected=f"{partition} to end at offset {first}",
                hint="let one export at a time write into a target",
            )

    def finish(self) -> ExportSteps:
        """See `ExportTarget.finish`."""
        return ExportSteps(self._files, self._size)

    def close(self) -> None:
        """See `ExportTarget.close`."""
        current, self._open = self._open, None
        if current is not None:
            current.file.abandon()
        self._place.close()


def _shown(shape: FileShape) -> str:
    types = dict(shape.decoded)
    names = [f"{name} ({types[name]})" if name in types else name for name in shape.columns]
    return f"{shape.format}, {shape.encoding}, columns {', '.join(names)}"
