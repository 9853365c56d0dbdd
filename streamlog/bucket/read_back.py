"""Objects that are compared, after they were written, with what was to be written.

The checksum of every two megabytes is taken while they pass on their way to the store, and again
while they come back from it. No byte of the object is kept for that.
"""

from typing import Final

from streamlog.binary.crc import crc32c_after
from streamlog.errors import CorruptRecordError, UnavailableError
from streamlog.store.api import Content, ObjectRange, ObjectStore
from streamlog.store.remote import PIECE_SIZE

__all__ = ["CheckedUpload"]

_COMPARED_AT_ONCE: Final = 32  # pieces, so that it ends soon when it is given up


class CheckedUpload:
    """An upload that can be read back.

    Args:
        store: The root's objects.
        key: Where the object goes; nothing else uses the key.

    Attributes:
        size: Bytes written so far.
    """

    def __init__(self, store: ObjectStore, key: str) -> None:
        self._store, self.key = store, key
        self._upload = store.upload(key)
        self._checksums: list[int] = []
        self._is_abandoned = False
        self.size = 0

    def write(self, content: Content) -> None:
        """Append bytes, which must never change: see `Upload.write`.

        Raises:
            StorageError: A request failed.
        """
        view = memoryview(content).cast("B")
        self._upload.write(view)
        at = 0
        while at < len(view):
            used = self.size % PIECE_SIZE
            if not used:
                self._checksums.append(0)
            stop = min(len(view), at + PIECE_SIZE - used)
            self._checksums[-1] = crc32c_after(view[at:stop], self._checksums[-1])
            self.size += stop - at
            at = stop

    def close(self) -> None:
        """Finish the object.

        Raises:
            StorageError: A request failed; the outcome is unknown.
        """
        self._upload.close()

    def abandon(self) -> None:
        """Give the object up; after `close`, a comparison ends early."""
        self._is_abandoned = True
        self._upload.abandon()

    def compare(self) -> None:
        """Read the object back, and compare it with what was written.

        Raises:
            CorruptRecordError: It differs; names the object and the position.
            StorageError: A request failed, or the object is too short.
        """
        for start in range(0, len(self._checksums), _COMPARED_AT_ONCE):
            if self._is_abandoned:
                raise UnavailableError("the copy was given up", path=self._path)
            self._compare(range(start, min(start + _COMPARED_AT_ONCE, len(self._checksums))))

    @property
    def _path(self) -> str:
        return f"{self._store.url}/{self.key}"

    def _compare(self, numbers: range) -> None:
        """Compare some pieces, by their numbers."""
        ranges = [
            ObjectRange(self.key, each * PIECE_SIZE, min(PIECE_SIZE, self.size - each * PIECE_SIZE))
            for each in numbers
        ]
        found = self._store.checksums(ranges)
        wanted = self._checksums[numbers.start : numbers.stop]
        for each, got, expected in zip(ranges, found, wanted, strict=True):
            if got != expected:
                raise CorruptRecordError(
                    "the object does not hold what was written",
                    path=self._path,
                    position=each.position,
                    got=f"{each.size} bytes with the CRC-32C {got:#010x}",
                    expected=f"{expected:#010x}",
                    hint="repeat the command: nothing refers to the object yet",
                )
