"""Files of `streamlog.fs` as Python's binary files, which libraries read and write."""

import io
from typing import Final

import numpy as np

from streamlog.errors import InvalidRequestError
from streamlog.fs.api import File
from streamlog.store.api import Upload

__all__ = ["FileReader", "FileWriter", "UploadWriter", "buffered"]

_BUFFER_SIZE: Final = 1 << 20


def buffered(raw: io.RawIOBase) -> io.BufferedWriter:
    """Return a writer that joins small writes: CSV comes line by line."""
    return io.BufferedWriter(raw, _BUFFER_SIZE)


class FileWriter(io.RawIOBase):
    """Appends to a new file; closing it leaves the file open.

    Args:
        file: The file, empty.

    Attributes:
        is_dead: Whether bytes are thrown away: buffers in front of this still hold some when the
            file is abandoned.
    """

    def __init__(self, file: File) -> None:
        self._file, self._size = file, 0
        self.is_dead = False

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: "bytes | memoryview") -> int:  # type: ignore[override]
        """Append bytes; return their number."""
        view = memoryview(data).cast("B")
        if not self.is_dead:
            self._file.pwrite(view, self._size)
            self._size += len(view)
        return len(view)

    def tell(self) -> int:
        """Return the bytes written so far."""
        return self._size


class UploadWriter(io.RawIOBase):
    """Appends to an object that is being uploaded; closing it does not finish the object.

    Args:
        upload: The upload.

    Attributes:
        is_dead: As of `FileWriter`.
    """

    def __init__(self, upload: Upload) -> None:
        self._upload, self._size = upload, 0
        self.is_dead = False

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: "bytes | memoryview") -> int:  # type: ignore[override]
        """Append bytes; return their number."""
        kept = bytes(data)  # an upload sends them later, and the caller reuses its buffer
        if not self.is_dead:
            self._upload.write(kept)
            self._size += len(kept)
        return len(kept)

    def tell(self) -> int:
        """Return the bytes written so far."""
        return self._size


class FileReader(io.RawIOBase):
    """Reads a file.

    Args:
        file: The file; closed with this object.
    """

    def __init__(self, file: File) -> None:
        self._file, self._at = file, 0
        self.size = file.stat().size

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, target: "memoryview | bytearray") -> int:  # type: ignore[override]
        """Fill `target` with the next bytes; return their number."""
        view = memoryview(target).cast("B")
        found = self._file.pread_into(np.frombuffer(view, np.uint8), self._at)
        self._at += found
        return found

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a position; return it."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.size}[whence]
        if start + offset < 0:
            raise InvalidRequestError(
                "position before the start of the file", path=self._file.path, got=start + offset
            )
        self._at = start + offset
        return self._at

    def tell(self) -> int:
        """Return the position of the next byte."""
        return self._at

    def close(self) -> None:
        """Close the file."""
        if not self.closed:
            self._file.close()
        super().close()
