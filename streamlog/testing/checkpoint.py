"""The checkpoint of a stopped streaming query: read its progress, replay a batch, restore a copy.

Spark keeps the progress of a query in small files: `offsets/N`, written before batch N, holds the
offsets to read; `commits/N` is written after it. A batch with the first file but not the second
runs again at the next start. This works on those files alone, so for any source and sink.
"""

import json
import os
import re
from typing import Any, Final

from streamlog.errors import FileExistsAlreadyError, InvalidRequestError, UnavailableError
from streamlog.fs.api import FileKind, FileSystem, OpenMode
from streamlog.fs.files import make_directories, read_file, remove_tree
from streamlog.fs.local import LocalFileSystem
from streamlog.query.checkpoint import QueryCheckpoint, local_path
from streamlog.testing.frames import hides_helper

__all__ = ["Checkpoint"]
__tracebackhide__ = hides_helper

_SIZE_MAX: Final = 1 << 30
_OBSTACLE: Final = b"a test ends the query here\n"
_BATCH: Final = re.compile(r"[0-9]{1,19}", re.ASCII)


class Checkpoint:
    """The checkpoint directory of one query; can be passed to Spark as a path.

        checkpoint = Checkpoint("checkpoints/copy")
        query = df.writeStream.option("checkpointLocation", checkpoint).start()

    Args:
        path: The directory; it need not exist yet.

    Raises:
        InvalidRequestError: It is not on a local file system.
    """

    def __init__(self, path: "str | os.PathLike[str]") -> None:
        local = local_path(os.fspath(path))
        if local is None:
            raise InvalidRequestError(
                "a checkpoint for tests must be on a local disk", got=os.fspath(path)
            )
        self.path: Final = local
        self._fs: Final[FileSystem] = LocalFileSystem()
        self._saved = 0

    def __str__(self) -> str:
        return self.path

    def __fspath__(self) -> str:
        return self.path

    # ---- look --------------------------------------------------------------------------------
    def planned(self) -> list[int]:
        """Return the batches with written offsets, ascending."""
        return self._batches("offsets")

    def committed(self) -> list[int]:
        """Return the finished batches, ascending."""
        return self._batches("commits")

    def next_batch(self) -> int:
        """Return the next batch to run: an unfinished planned batch, or a new one."""
        return max(self.committed(), default=-1) + 1

    def query_id(self) -> str | None:
        """Return the id of the query, or None before its first start."""
        if self._fs.stat(os.path.join(self.path, "metadata")) is None:
            return None
        return QueryCheckpoint(self._fs, self.path).query_id()

    def offsets(self, batch: int) -> list[Any]:
        """Return the end offsets of a batch for each source.

            assert checkpoint.offsets(0) == [{"orders": {"0": 2}}]

        Returns:
            A JSON value per source, in the order of the query.

        Raises:
            InvalidRequestError: The batch was not planned.
            CorruptCheckpointError: The file is torn.
        """
        lines = QueryCheckpoint(self._fs, self.path).source_lines(batch)
        if lines is None:
            raise InvalidRequestError(
                f"batch {batch} was not planned", path=self.path, expected=self.planned()
            )
        return [_parse(line) for line in lines.splitlines()]

    # ---- turn back ---------------------------------------------------------------------------
    def replay_last_batch(self) -> int:
        """Make the last finished batch run again at the next start.

        A crash between the last step of the sink and that of Spark leaves the same state.

            checkpoint.replay_last_batch()
            job()

        Returns:
            The batch number.

        Raises:
            InvalidRequestError: No batch is finished.
        """
        committed = self.committed()
        if not committed:
            raise InvalidRequestError("no finished batch", path=self.path)
        last = committed[-1]
        for path in (self._file("commits", last), self._file("commits", f".{last}.crc")):
            if self._fs.stat(path) is not None:
                self._fs.remove(path)
        return last

    def save(self) -> "Checkpoint":
        """Copy the checkpoint next to itself, for `restore`; return the copy."""
        self._saved += 1
        saved = Checkpoint(f"{self.path}.saved-{self._saved}")
        self._copy(self.path, saved.path)
        return saved

    def restore(self, saved: "Checkpoint") -> None:
        """Return to an older state, like restoring a backup.

            old = checkpoint.save()
            job()
            checkpoint.restore(old)
            job()

        Args:
            saved: The result of `save`.
        """
        remove_tree(self._fs, self.path)
        self._copy(saved.path, self.path)

    # ---- for crashes -------------------------------------------------------------------------
    def obstruct(self, kind: str, batch: int) -> None:
        """Create the file that Spark is about to write, which makes the query fail there.

        Args:
            kind: `offsets` or `commits`.
            batch: The batch.

        Raises:
            UnavailableError: Spark wrote the file first.
        """
        make_directories(self._fs, os.path.join(self.path, kind))
        try:
            with self._fs.open(self._file(kind, batch), OpenMode.CREATE) as file:
                file.pwrite(_OBSTACLE, 0)
        except FileExistsAlreadyError as error:
            raise UnavailableError(
                f"the query passed {kind}/{batch} before it could be stopped",
                path=self.path,
                hint="run the test again, or stop at a later batch",
            ) from error

    def clear(self, kind: str, batch: int) -> None:
        """Remove the file that `obstruct` created; keep a file of Spark."""
        path = self._file(kind, batch)
        is_there = self._fs.stat(path) is not None
        if is_there and read_file(self._fs, path, max_size=_SIZE_MAX) == _OBSTACLE:
            self._fs.remove(path)

    def _file(self, kind: str, batch: int | str) -> str:
        return os.path.join(self.path, kind, str(batch))

    def _batches(self, kind: str) -> list[int]:
        directory = os.path.join(self.path, kind)
        if self._fs.stat(directory) is None:
            return []
        return sorted(int(name) for name in self._fs.list(directory) if _BATCH.fullmatch(name))

    def _copy(self, source: str, target: str) -> None:
        self._fs.make_directory(target)
        for name in self._fs.list(source):
            inner, copy = os.path.join(source, name), os.path.join(target, name)
            found = self._fs.stat(inner)
            if found is not None and found.kind is FileKind.DIRECTORY:
                self._copy(inner, copy)
            else:
                with self._fs.open(copy, OpenMode.CREATE) as file:
                    file.pwrite(read_file(self._fs, inner, max_size=_SIZE_MAX), 0)


def _parse(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:  # some sources write text that is not JSON, or "-" for no offset
        return line
