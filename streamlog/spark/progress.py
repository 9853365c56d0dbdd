"""How far a group of readers is, for whoever asks: lag, and retention that waits.

    <root>/.streamlog/readers/<group>.json
    {"group": "billing", "committedMs": 1700000000000, "offsets": {"orders": {"0": 123}, …}}

The offsets are those of the query's checkpoint (see `streamlog.spark.offsets`). The file is
replaced as a whole. It is the only thing that a reader ever writes, and only when asked to by
`kafka.group.id`; a root that is not ours is never written to.
"""

import json
from collections.abc import Mapping

from streamlog.errors import InvalidOptionError
from streamlog.fs.api import FileSystem, OpenMode
from streamlog.fs.files import make_directories, write_file_atomically
from streamlog.fs.local import LocalFileSystem
from streamlog.log.roots import is_our_root, state_path

__all__ = ["check_progress", "progress_path", "write_progress"]


def progress_path(root: str, group: str) -> str:
    """Return where the progress of a group is."""
    return f"{state_path(root, 'readers')}/{group}.json"


def check_progress(root: str, group: str, *, fs: FileSystem | None = None) -> None:
    """Make the folder for progress, so that a query fails at its start and not at its end.

    Raises:
        InvalidOptionError: The root is not ours to write to.
        StorageError: It cannot be written to.
    """
    fs = fs or LocalFileSystem()
    if not is_our_root(fs, root):
        raise InvalidOptionError(
            "option kafka.group.id needs a log root of streamlog: its readers folder is written to",
            path=root,
            got="a directory without .streamlog",
            hint="leave kafka.group.id out; the query's checkpoint keeps its offsets anyway",
        )
    path = progress_path(root, group)
    make_directories(fs, path.rpartition("/")[0])
    fs.open(f"{path}.probe", OpenMode.CREATE_OR_WRITE).close()
    fs.remove(f"{path}.probe")


def write_progress(
    root: str,
    group: str,
    offsets: Mapping[str, object],
    *,
    now_ms: int,
    fs: FileSystem | None = None,
) -> None:
    """Write down that `group` has finished everything before `offsets`.

    Raises:
        StorageError: It cannot be written.
    """
    document = {"group": group, "committedMs": now_ms, "offsets": offsets}
    text = json.dumps(document, indent=1) + "\n"
    write_file_atomically(fs or LocalFileSystem(), progress_path(root, group), text.encode())
