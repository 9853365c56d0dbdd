"""Reading staged batches back, with every check that the bytes themselves allow."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamlog.commits.decisions import DecidedExtent, DecidedFile
from streamlog.commits.staging import StagingArea
from streamlog.errors import CorruptRecordError, FileMissingError
from streamlog.records.batch import check_crc, scan_batches
from streamlog.records.layout import CURRENT_MAGIC
from streamlog.records.table import BatchTable, ScanStop

__all__ = ["ExtentReader"]

KEPT_SIZE: Final = 64 << 20


class ExtentReader:
    """Reads extents of the staged files of one commit.

    A committer reads everything twice: to check it before it takes locks, and to apply it. Up to
    `KEPT_SIZE` bytes are kept for the second time.

    Args:
        area: The staged files.
        app: Whose they are.
        files: The files that extents point to by index.
    """

    __slots__ = ("_app", "_area", "_files", "_kept", "_kept_size")

    def __init__(self, area: StagingArea, app: str, files: tuple[DecidedFile, ...]) -> None:
        self._area, self._app, self._files = area, app, files
        self._kept: dict[DecidedExtent, tuple[NDArray[np.uint8], BatchTable]] = {}
        self._kept_size = 0

    def path(self, extent: DecidedExtent) -> str:
        """Return the path of the file that an extent lies in."""
        return self._area.file_path(self._app, self._files[extent.file].name)

    def read(
        self, extent: DecidedExtent, *, keep: bool = False
    ) -> tuple[NDArray[np.uint8], BatchTable]:
        """Return the batches of an extent, checked; the bytes are the caller's unless kept.

        Args:
            extent: Where they are staged.
            keep: Whether they will be asked for once more.

        Raises:
            CorruptRecordError: The file is gone or too short, or its bytes are not the batches
                that the extent promises.
            StorageError: The disk refuses.
        """
        kept = self._kept.get(extent)
        if kept is not None:
            if not keep:
                del self._kept[extent]
                self._kept_size -= extent.size
            return kept
        buffer = self._read_bytes(extent)
        table = self._check(extent, buffer)
        if keep and self._kept_size + extent.size <= KEPT_SIZE:
            self._kept[extent] = buffer, table
            self._kept_size += extent.size
        return buffer, table

    def _read_bytes(self, extent: DecidedExtent) -> NDArray[np.uint8]:
        path = self.path(extent)
        try:
            file = self._area.open(self._app, self._files[extent.file].name)
        except FileMissingError as error:
            raise CorruptRecordError(
                "a staged file is gone",
                path=path,
                expected=f"{self._files[extent.file].size} bytes",
                hint="nothing but streamlog may remove files below .streamlog; a commit that is "
                "not decided yet can be made again",
            ) from error
        with file:
            size = file.stat().size
            if size != self._files[extent.file].size or extent.size > size - extent.position:
                raise CorruptRecordError(
                    "a staged file has another size than its task reported",
                    path=path,
                    got=f"{size} bytes",
                    expected=f"{self._files[extent.file].size}",
                )
            buffer = np.empty(extent.size, np.uint8)
            found = file.pread_into(buffer, extent.position)
        if found != extent.size:
            raise CorruptRecordError(
                "a staged file ends early", path=path, got=f"{found} bytes", expected=extent.size
            )
        return buffer

    def _check(self, extent: DecidedExtent, buffer: NDArray[np.uint8]) -> BatchTable:
        path = self.path(extent)
        table, stop, consumed = scan_batches(buffer)
        if stop is not ScanStop.END or len(table) != extent.batches:
            raise CorruptRecordError(
                "staged bytes are not the batches that the task reported",
                path=path,
                position=extent.position + consumed,
                got=f"{len(table)} batches, then {stop.name.lower().replace('_', ' ')}",
                expected=f"{extent.batches} batches, then the end",
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
        is_dense &= bool((table.magic == CURRENT_MAGIC).all())  # no other has headers to rewrite
        goes_on = bool((table.base_offset[1:] == table.last_offset[:-1] + 1).all())
        if not (is_dense and goes_on) or int(table.count.sum()) != extent.records:
            raise CorruptRecordError(
                "staged batches do not hold the records that the task reported",
                path=path,
                position=extent.position,
                got=f"{int(table.count.sum())} records",
                expected=f"{extent.records}, one an offset",
            )
        return table
