"""Reads staged batches back and makes every check that the bytes themselves allow."""

from abc import ABC, abstractmethod
from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamlog.commits.decisions import DecidedExtent, DecidedFile
from streamlog.commits.staging import StagingArea
from streamlog.errors import CorruptRecordError, FileMissingError
from streamlog.records.batch import check_crc, scan_batches
from streamlog.records.layout import CURRENT_MAGIC
from streamlog.records.table import BatchTable, ScanStop

__all__ = ["CheckedExtents", "ExtentReader"]

KEPT_SIZE: Final = 64 << 20


class CheckedExtents(ABC):
    """Reads extents of one commit, wherever they are staged, and checks them.

    A committer reads everything twice: to check it before taking locks, and to apply it. Up to
    `KEPT_SIZE` bytes are cached for the second time.
    """

    __slots__ = ("_kept", "_kept_size")

    def __init__(self) -> None:
        self._kept: dict[DecidedExtent, tuple[NDArray[np.uint8], BatchTable]] = {}
        self._kept_size = 0

    @abstractmethod
    def path(self, extent: DecidedExtent) -> str:
        """Return the path of an extent's file."""

    @abstractmethod
    def read_bytes(self, extent: DecidedExtent) -> NDArray[np.uint8]:
        """Return the bytes of an extent, unchecked.

        Raises:
            CorruptRecordError: The file is missing or too short.
        """

    def read(
        self, extent: DecidedExtent, *, keep: bool = False
    ) -> tuple[NDArray[np.uint8], BatchTable]:
        """Return the checked batches of an extent; modify the bytes only if `keep` is not set.

        Args:
            extent: Where they are staged.
            keep: Whether the extent will be read once more.

        Raises:
            CorruptRecordError: The file is missing or too short, or its bytes are not the batches
                that the extent describes.
        """
        kept = self._kept.get(extent)
        if kept is not None:
            if not keep:
                del self._kept[extent]
                self._kept_size -= extent.size
            return kept
        buffer = self.read_bytes(extent)
        table = self._check(extent, buffer)
        if keep and self._kept_size + extent.size <= KEPT_SIZE:
            self._kept[extent] = buffer, table
            self._kept_size += extent.size
        return buffer, table

    def _check(self, extent: DecidedExtent, buffer: NDArray[np.uint8]) -> BatchTable:
        path = self.path(extent)
        table, stop, consumed = scan_batches(buffer)
        if stop is not ScanStop.END or len(table) != extent.batches:
            raise CorruptRecordError(
                "staged bytes are not the batches that the task reported",
                path=path,
                position=extent.position + consumed,
                got=f"{len(table)} batches, then {stop.name.lower().replace('_', ' ')}",
                expected=f"{extent.batches} batches, then end",
            )
        good = check_crc(buffer, table)
        if good < len(table):
            raise CorruptRecordError(
                "staged batch fails its checksum",
                path=path,
                position=extent.position + int(table.position[good]),
                expected=f"{int(table.crc[good]):#010x}",
            )
        is_dense = bool((table.count == table.last_offset - table.base_offset + 1).all())
        is_dense &= bool((table.magic == CURRENT_MAGIC).all())  # only v2 headers can be rewritten
        goes_on = bool((table.base_offset[1:] == table.last_offset[:-1] + 1).all())
        if not (is_dense and goes_on) or int(table.count.sum()) != extent.records:
            raise CorruptRecordError(
                "staged batches do not hold the records that the task reported",
                path=path,
                position=extent.position,
                got=f"{int(table.count.sum())} records",
                expected=f"{extent.records}, one per offset",
            )
        return table


class ExtentReader(CheckedExtents):
    """Reads extents of the staged files of one commit.

    Args:
        area: The staged files.
        app: The app.
        files: The files that extents refer to by index.
    """

    __slots__ = ("_app", "_area", "_files")

    def __init__(self, area: StagingArea, app: str, files: tuple[DecidedFile, ...]) -> None:
        super().__init__()
        self._area, self._app, self._files = area, app, files

    def path(self, extent: DecidedExtent) -> str:
        """Return the path of an extent's file."""
        return self._area.file_path(self._app, self._files[extent.file].name)

    def read_bytes(self, extent: DecidedExtent) -> NDArray[np.uint8]:
        """Return the bytes of an extent, unchecked; see `CheckedExtents.read_bytes`."""
        path = self.path(extent)
        try:
            file = self._area.open(self._app, self._files[extent.file].name)
        except FileMissingError as error:
            raise CorruptRecordError(
                "staged file is missing",
                path=path,
                expected=f"{self._files[extent.file].size} bytes",
                hint="only streamlog may remove files below .streamlog; a commit that is not "
                "decided yet can be repeated",
            ) from error
        with file:
            size = file.stat().size
            if size != self._files[extent.file].size or extent.size > size - extent.position:
                raise CorruptRecordError(
                    "staged file does not have the size that its task reported",
                    path=path,
                    got=f"{size} bytes",
                    expected=f"{self._files[extent.file].size}",
                )
            buffer = np.empty(extent.size, np.uint8)
            found = file.pread_into(buffer, extent.position)
        if found != extent.size:
            raise CorruptRecordError(
                "staged file ends early", path=path, got=f"{found} bytes", expected=extent.size
            )
        return buffer
