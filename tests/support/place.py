"""A directory of any file system."""

from typing import NamedTuple

from streamlog.fs.api import FileSystem, OpenMode
from streamlog.fs.memory import MemoryFileSystem


class Place(NamedTuple):
    """A directory, with shortcuts for its files."""

    fs: FileSystem
    root: str

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def write(self, name: str, content: bytes) -> str:
        """Create or replace a file; return its path."""
        with self.fs.open(self.path(name), OpenMode.CREATE_OR_WRITE) as file:
            file.truncate(0)
            file.pwrite(content, 0)
        return self.path(name)

    def read(self, name: str) -> bytes:
        with self.fs.open(self.path(name), OpenMode.READ) as file:
            return file.pread(1 << 20, 0)


def memory_place() -> Place:
    """Return an empty directory in memory."""
    fs = MemoryFileSystem()
    fs.make_directory("/logs")
    return Place(fs, "/logs")
