"""Checks that a directory is not changed: by facts about its files, or at each system call."""

import os
import sys
from pathlib import Path
from typing import Any

__all__ = ["allow_only_reading", "facts"]

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = {
    "os.chmod",
    "os.chown",
    "os.link",
    "os.mkdir",
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.setxattr",
    "os.symlink",
    "os.truncate",
    "os.utime",
}
_LOCKS = {"fcntl.flock", "fcntl.lockf"}


def facts(directory: Path) -> dict[str, tuple[int, ...]]:
    """Return facts that any change below a directory alters, for the directory and each file.

    The kernel updates the change time of a file (`st_ctime`) at each write, rename, link and change
    of mode or times, and that of a directory at each added or removed name.
    """
    return {
        str(path): (
            found.st_ino,
            found.st_size,
            found.st_mtime_ns,
            found.st_ctime_ns,
            found.st_mode,
            found.st_nlink,
        )
        for path in (directory, *directory.rglob("*"))
        for found in [path.lstat()]
    }


def allow_only_reading(directory: Path) -> None:
    """Raise an error from now on at each attempt to change or lock a file below `directory`.

    For a process of its own: Python cannot remove an audit hook.
    """
    below = f"{directory.resolve()}/"

    def is_below(target: Any) -> bool:
        if isinstance(target, int):
            target = os.readlink(f"/proc/self/fd/{target}")
        name = os.fsdecode(target)
        return f"{os.path.abspath(name)}/".startswith(below)

    def check(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if path is not None and flags & _WRITING and is_below(path):
                raise AssertionError(f"opened for writing: {path!r}, flags {flags:#x}")
        elif event in _CHANGES or event in _LOCKS:
            for argument in arguments[: 1 if event in _LOCKS else 2]:
                is_place = isinstance(argument, str | bytes | os.PathLike) or event in _LOCKS
                if is_place and is_below(argument):
                    raise AssertionError(f"{event}{arguments!r}")

    sys.addaudithook(check)
