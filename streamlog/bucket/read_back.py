"""Objects that are compared, after they were written, with what was to be written.

The checksum of every two megabytes is taken while they pass on their way to the store, and again
while they come back from it. No byte of the object is kept for that.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Final

from streamlog.binary.crc import crc32c_after
from streamlog.errors import CorruptRecordError, UnavailableError
from streamlog.store.api import Content, ObjectRange, ObjectStore
from streamlog.store.remote import PIECE_SIZE

__all__ = ["CheckedUpload", "compare"]

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
        self.key = key
        self._upload = store.upload(key)
        self._checksums: list[int] = []
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
        """Give the object up; harmless after `close`."""
        self._upload.abandon()

    def pieces(self) -> Iterator[tuple[ObjectRange, int]]:
        """Yield the ranges of the object and the checksum of each."""
        for number, checksum in enumerate(self._checksums):
            at = number * PIECE_SIZE
            yield ObjectRange(self.key, at, min(PIECE_SIZE, self.size - at)), checksum


def compare(
    store: ObjectStore, uploads: Iterable[CheckedUpload], *, is_given_up: Callable[[], bool]
) -> None:
    """Read objects back, and compare them with what was written.

    Args:
        store: Where they are.
        uploads: Those that wrote them, closed.
        is_given_up: Whether the copy was given up; called after every few pieces.

    Raises:
        CorruptRecordError: One differs; names the object and the position.
        StorageError: A request failed, or an object is too short.
        UnavailableError: It was given up.
    """
    pieces = chain.from_iterable(each.pieces() for each in uploads)
    while some := list(islice(pieces, _COMPARED_AT_ONCE)):
        if is_given_up():
            raise UnavailableError("the copy was given up", path=store.url)
        found = store.checksums([each for each, _ in some])
        for (each, expected), got in zip(some, found, strict=True):
            if got != expected:
                raise CorruptRecordError(
                    "the object does not hold what was written",
                    path=f"{store.url}/{each.key}",
                    position=each.position,
                    got=f"{each.size} bytes with the CRC-32C {got:#010x}",
                    expected=f"{expected:#010x}",
                    hint="repeat the command: nothing refers to the object yet",
                )
