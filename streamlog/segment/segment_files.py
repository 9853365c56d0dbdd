"""What happens to the files of a segment as files: sync, rename, remove."""

import logging

from streamlog.errors import CorruptIndexError
from streamlog.fs.api import FileSystem
from streamlog.segment.filenames import FileSuffix, SegmentSuffix, segment_file_name
from streamlog.segment.index_file import IndexFile
from streamlog.segment.indexed_records import IndexedRecords
from streamlog.segment.txn_index import TxnIndex

__all__ = ["SegmentFiles"]

_logger = logging.getLogger(__name__)


class SegmentFiles:
    """The log file and its three indexes, as files.

    Args:
        fs: Where they lie.
        directory: The partition's directory.
        log: The log file and the two sparse indexes.
        suffix: What stands behind the files' names.

    Attributes:
        is_dirty: Whether the log file may hold bytes that were not synced.
        is_sealed: Whether the segment does not grow any more, so that its indexes are final.
        names_changed: Whether the directory has to be synced.
    """

    __slots__ = (
        "_directory",
        "_fs",
        "_log",
        "_txn_index",
        "_txn_index_is_loaded",
        "is_dirty",
        "is_sealed",
        "names_changed",
    )

    def __init__(
        self, fs: FileSystem, directory: str, log: IndexedRecords, suffix: SegmentSuffix
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._log = log
        name = segment_file_name(log.base_offset, FileSuffix.TXN_INDEX, suffix)
        self._txn_index = TxnIndex(fs, f"{directory}/{name}", log.base_offset)
        self._txn_index_is_loaded = False
        self.is_dirty = True
        self.is_sealed = False
        self.names_changed = False

    # ---- the transaction index ---------------------------------------------------------------
    @property
    def txn_index(self) -> TxnIndex:
        """The transaction index, loaded when first asked for.

        Raises:
            CorruptIndexError: Its file is damaged.
        """
        if not self._txn_index_is_loaded:
            self._txn_index.load(log_size=self._log.records.file.stat().size)
            self._txn_index_is_loaded = True
        return self._txn_index

    def reload_txn_index(self) -> None:
        """Read the transaction index anew when it is next asked for."""
        self._txn_index_is_loaded = False

    def reset_txn_index(self) -> None:
        """Have an empty transaction index, and no file of one."""
        self._txn_index.reset()
        self._txn_index_is_loaded = True

    def forget_transactions(self, offset: int) -> None:
        """Drop the aborted transactions whose markers were cut, those from `offset` on.

        A damaged transaction index is left alone: readers are told as soon as they need it.
        """
        try:
            self.txn_index.truncate_to(offset)
        except CorruptIndexError as error:
            _logger.warning("%s", error)

    # ---- all files ---------------------------------------------------------------------------
    def sync(self, *, leave_names: bool = False) -> None:
        """Make the log durable, and what else must be; see `Segment.sync`."""
        if self.is_dirty:
            self._log.records.file.sync()
        files = [self._txn_index.file]
        if self.is_sealed:
            files += self._log.index_files()
        for file in files:
            file.sync()
            self.names_changed |= file.was_created
            file.was_created = False
        if not leave_names:
            self.sync_names()
        self.is_dirty = False

    def sync_names(self, *, is_done: bool = False) -> None:
        """Make the names of the files durable that were made since the last sync."""
        if self.names_changed and not is_done:
            self._fs.sync_directory(self._directory)
        self.names_changed = False

    def rename(self, old: SegmentSuffix, new: SegmentSuffix) -> None:
        """Put another suffix behind the names; an index may be missing, the log may not."""
        path = self._log.records.path
        self._log.records.rename(path.removesuffix(old.value) + new.value)
        for file in self._index_files():
            file.rename(file.path.removesuffix(old.value) + new.value)

    def remove(self) -> None:
        """Remove all of them; what recovery kept aside stays."""
        self._log.records.remove()
        self.remove_indexes()

    def remove_indexes(self) -> None:
        """Remove the files of the indexes."""
        for file in self._index_files():
            file.remove()

    def close(self) -> None:
        """Release the handles; a later call opens them again."""
        self._log.close()
        self._txn_index.file.close()

    def _index_files(self) -> list[IndexFile]:
        return [*self._log.index_files(), self._txn_index.file]
