"""A directory for programs that take their input from files only."""

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from streamlog.errors import InvalidOptionError

__all__ = ["scratch_directory"]


@contextmanager
def scratch_directory(files: Mapping[str, bytes]) -> Iterator[Path]:
    """Make a temporary directory with some files, removed at the end; nothing is durable.

    Args:
        files: Content by path, relative to the directory.

    Raises:
        InvalidOptionError: A path leads out of the directory.
    """
    with tempfile.TemporaryDirectory(prefix="streamlog-") as name:
        directory = Path(name)
        for path, content in files.items():
            target = Path(os.path.normpath(directory / path))
            if directory not in target.parents or "\0" in path:
                raise InvalidOptionError("a path leads out of its directory", got=repr(path))
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        yield directory
