"""What somebody else may have put into a shared directory under a name that a log root uses.

In a directory that everybody may write to and where each user owns what is theirs (sticky, as
`/tmp`), any user can make `.streamlog` or `orders-0` before anybody else does, and own what others
write there. Nothing in such a directory is taken for a part of the root unless it belongs to this
process's user, to root, or to the owner of the directory. A directory that is shared by a group
(`chmod 2770`, with or without sticky) is no such directory: its members trust each other.

Only writers are held to this. What is read is checked byte by byte, whoever wrote it.
"""

import stat
from typing import Final

from streamlog.errors import InvalidRequestError
from streamlog.fs.files import stat_directory
from streamlog.fs.log_root import (
    CHECKPOINTS,
    CLEAN_SHUTDOWN,
    META_PROPERTIES,
    STATE_DIRECTORY,
    LogRoot,
)

__all__ = ["refuse_planted"]

_OPEN_TO_ALL: Final = stat.S_IWOTH | stat.S_ISVTX
_SUPERUSER: Final = 0
_OF_A_ROOT: Final = (
    STATE_DIRECTORY,
    CLEAN_SHUTDOWN,
    META_PROPERTIES,
    *CHECKPOINTS,
)


def refuse_planted(root: LogRoot, *names: str) -> None:
    """Raise where a part of a root belongs to a stranger, in a directory open to everybody.

    Args:
        root: The log root; harmless where it is missing.
        names: Partitions' directories that are going to be written, besides what every root has.

    Raises:
        InvalidRequestError: There is such a part; nothing was written.
        StorageError: The root cannot be looked at.
    """
    shared = stat_directory(root.fs, root.path)
    if shared is None or shared.mode & _OPEN_TO_ALL != _OPEN_TO_ALL:
        return
    trusted = {root.fs.user_id(), _SUPERUSER, shared.owner}
    for name in (*_OF_A_ROOT, *names):
        path = f"{root.path}/{name}"
        found = root.fs.stat(path)
        if found is not None and found.owner not in trusted:
            raise InvalidRequestError(
                "another user made this in a directory that everybody may write to",
                path=path,
                got=f"owner {found.owner} in a directory of mode {stat.S_IMODE(shared.mode):04o}",
                expected=f"owner {root.fs.user_id()}, root, or the directory owner {shared.owner}",
                hint=f"use a directory of your own, or one of a group: chmod o-w {root.path}",
            )
