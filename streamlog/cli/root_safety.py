"""What `doctor` says of safety: who else may change a root, and what its disk keeps.

The file system is the access control of a log. Whoever may write into a root may feed every reader
any bytes, so it is said who may; and a promise that the disk does not keep is told where that can
be seen. Each check returns findings; none raises because something is wrong, and none looks
below a symbolic link.
"""

import contextlib
import os
import re
import shlex
import stat
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from streamlog.cli.checkup_findings import FAIL, OK, WARN, CheckupFinding
from streamlog.clock import Clock, SystemClock
from streamlog.errors import StreamLogError
from streamlog.fs.api import FileKind, FileStat, FileSystem, OpenMode
from streamlog.fs.names import temporary_path
from streamlog.root.directories import Holding, holding_of
from streamlog.root.roots import state_path
from streamlog.topic import parse_partition_directory

__all__ = ["check_access", "check_look_alikes", "check_promises"]

NAMED_MAX: Final = 5  # so many paths a finding names
SYNCS: Final = 5
IMPOSSIBLE_SYNC_MS: Final = 0.02  # not even a device with a capacitor answers that fast
PROBE_SIZE: Final = 4096
MOUNTS: Final = Path("/proc/self/mountinfo")
_CARELESS: Final = {"nobarrier", "barrier=0", "data=writeback"}
_PRELOADED: Final = ("eatmydata",)
_PARTITION_LIKE: Final = re.compile(r".+-\W?\d+", re.DOTALL)  # to an eye, so digits of any script


# ---- who may change it --------------------------------------------------------------------------
def check_access(fs: FileSystem, root: str) -> Iterator[CheckupFinding]:
    """Yield what is unsafe about modes, owners, links and kinds of what lies below a root.

    Args:
        fs: Where it is.
        root: Its directory.
    """
    below = list(_below(fs, root))
    owner = below[0][1].owner
    writable = [
        path
        for path, found in below
        if found.mode & stat.S_IWOTH
        and found.kind is not FileKind.SYMLINK
        and not (found.kind is FileKind.DIRECTORY and found.mode & stat.S_ISVTX)
    ]
    foreign = [path for path, found in below if found.owner != owner]
    links = [
        path
        for path, found in below
        if (found.kind is FileKind.SYMLINK and not _is_linked_partition(fs, root, path))
        or (found.kind is FileKind.FILE and found.links > 1 and path.endswith(".log"))
    ]
    odd = [path for path, found in below if found.kind is FileKind.OTHER]
    where = shlex.quote(root)
    yield _some("modes", FAIL, writable, root, "everybody may write", f"chmod -R o-w {where}")
    yield _some(
        *("owners", WARN, foreign, root, f"not of user {owner}, who owns the root"),
        f"chown -R --no-dereference {owner} {where}   (or know why)",
    )
    yield _some(
        *("links", FAIL, links, root, "symbolic links, or segments with a second name"),
        "see where they lead: only a link to a directory with a log is followed, and only as a "
        "partition; what has two names changes twice",
    )
    yield _some(
        *("kinds", FAIL, odd, root, "pipes, sockets or devices"),
        "remove them; they are never opened",
    )


def _is_linked_partition(fs: FileSystem, root: str, path: str) -> bool:
    """Tell whether a link is followed: to a directory with a log, as a partition's name."""
    if os.path.dirname(path) != root or parse_partition_directory(os.path.basename(path)) is None:
        return False
    with contextlib.suppress(StreamLogError):  # it leads nowhere
        return holding_of(fs, path) is Holding.LOG
    return False


def check_look_alikes(fs: FileSystem, root: str, topics: Iterable[str]) -> Iterator[CheckupFinding]:
    """Yield which names in a root a person would take for something else.

    Args:
        fs: Where it is.
        root: Its directory.
        topics: The topics it has.
    """
    known = {*topics}
    odd = [
        os.path.join(root, name)
        for name in fs.list(root)
        if _PARTITION_LIKE.fullmatch(name) and not _is_partition_of(name, known)
    ]
    cure = "nobody reads them: see who put them there, then move them out of the root"
    yield _some("look-alikes", WARN, odd, root, "called like a partition, of no topic here", cure)
    alike = defaultdict[str, list[str]](list)
    for name in sorted(known):
        alike[name.casefold().replace(".", "_")].append(name)
    for names in alike.values():
        if len(names) > 1:
            found = f"topics that differ only in case, or in . and _: {', '.join(names)}"
            cure = "take care to name the right one; a broker reports both as one in its metrics"
            yield CheckupFinding("look-alikes", WARN, found, cure)


def _is_partition_of(name: str, topics: set[str]) -> bool:
    partition = parse_partition_directory(name)
    return partition is not None and partition.topic in topics


def _below(fs: FileSystem, root: str) -> Iterator[tuple[str, FileStat]]:
    """Yield a root and all below it, links themselves."""
    found = fs.stat(root)
    if found is None:
        return
    yield root, found
    if found.kind is FileKind.DIRECTORY:
        for name in fs.list(root):
            yield from _below(fs, os.path.join(root, name))


def _some(
    check: str, status: str, paths: list[str], root: str, what: str, cure: str
) -> CheckupFinding:
    if not paths:
        return CheckupFinding(check, OK, "nothing unusual")
    named = ", ".join(os.path.relpath(path, root) for path in sorted(paths)[:NAMED_MAX])
    more = ", …" if len(paths) > NAMED_MAX else ""
    return CheckupFinding(check, status, f"{what}: {len(paths)} ({named}{more})", cure)


# ---- what the disk keeps ------------------------------------------------------------------------
def check_promises(
    fs: FileSystem, root: str, *, clock: Clock | None = None
) -> Iterator[CheckupFinding]:
    """Try in a root of ours what every commit relies on; leaves nothing behind.

    Args:
        fs: Where it is.
        root: Its directory.
        clock: Measures a sync.
    """
    yield from _check_names(fs, root)
    yield from _check_locks(fs, root)
    yield from _check_syncs(fs, root, clock or SystemClock())


def _check_names(fs: FileSystem, root: str) -> Iterator[CheckupFinding]:
    """Decisions are made with links, checkpoints with renames over what stands."""
    one = temporary_path(state_path(root, "doctor"))
    other = temporary_path(state_path(root, "doctor"))
    try:
        _create(fs, one, b"one")
        fs.link(one, other)
        fs.remove(one)
        _create(fs, one, b"two")
        fs.rename(one, other)
        fs.sync_directory(state_path(root))
        with fs.open(other, OpenMode.READ) as file:
            is_kept = file.pread(4, 0) == b"two" and fs.stat(one) is None
    except StreamLogError as error:
        cure = "use a file system with hard links and atomic renames: ext4, XFS, btrfs"
        yield CheckupFinding("names", FAIL, str(error), cure)
        return
    finally:
        with contextlib.suppress(StreamLogError):
            _remove(fs, one, other)
    if is_kept:
        yield CheckupFinding("names", OK, "links, and renames over what stands")
    else:
        yield CheckupFinding(
            "names", FAIL, "a rename did not put one file in place of another", None
        )


def _check_locks(fs: FileSystem, root: str) -> Iterator[CheckupFinding]:
    path = temporary_path(state_path(root, "doctor"))
    try:
        lock = fs.try_lock(path, shared=False)
        second = fs.try_lock(path, shared=False)
        for each in (lock, second):
            if each is not None:
                each.release()
        _remove(fs, path)
    except StreamLogError as error:
        yield CheckupFinding("locks", FAIL, str(error), "mount it with locks (NFS: version 4)")
        return
    if lock is None or second is not None:
        cure = "mount it with locks; until then let a single process write"
        yield CheckupFinding("locks", FAIL, "two handles hold the same exclusive lock", cure)
    else:
        yield CheckupFinding("locks", OK, "an exclusive lock keeps others out")


def _check_syncs(fs: FileSystem, root: str, clock: Clock) -> Iterator[CheckupFinding]:
    """Tell of what makes a sync a lie, as far as that can be seen from here."""
    preloaded = os.environ.get("LD_PRELOAD", "")
    if any(name in preloaded for name in _PRELOADED):
        found = f"LD_PRELOAD={preloaded}: a sync does nothing in this process"
        yield CheckupFinding("sync", FAIL, found, "unset LD_PRELOAD")
        return
    kind, options = _mount_of(root)
    careless = sorted(_CARELESS.intersection(options))
    if careless:
        cure = f"mount it without: mount -o remount,barrier=1 {shlex.quote(root)}"
        yield CheckupFinding("sync", WARN, f"mounted with {', '.join(careless)}", cure)
        return
    try:
        fastest_ms = _fastest_sync(fs, root, clock)
    except StreamLogError as error:
        yield CheckupFinding("sync", FAIL, str(error), f"dmesg | tail; df -h {shlex.quote(root)}")
        return
    if fastest_ms < IMPOSSIBLE_SYNC_MS and kind not in ("tmpfs", "ramfs"):
        found = f"{fastest_ms * 1000:.0f} µs for {PROBE_SIZE} bytes: nothing can have been written"
        yield CheckupFinding("sync", FAIL, found, "see what is between here and the disk")
    else:
        yield CheckupFinding(
            "sync", OK, f"{fastest_ms:.2f} ms; that the disk keeps it cannot be seen"
        )


def _fastest_sync(fs: FileSystem, root: str, clock: Clock) -> float:
    path = temporary_path(state_path(root, "doctor"))
    took = []
    with fs.open(path, OpenMode.CREATE) as file:
        for number in range(SYNCS):
            file.pwrite(bytes(PROBE_SIZE), number * PROBE_SIZE)
            start = clock.monotonic_ms()
            file.sync()
            took.append(clock.monotonic_ms() - start)
    _remove(fs, path)
    return min(took)


def _mount_of(root: str) -> tuple[str, list[str]]:
    """Return the kind and the options of the mount that a path lies in; Linux only."""
    try:
        lines = MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return "unknown", []
    found: tuple[int, str, list[str]] = (0, "unknown", [])
    path = os.path.realpath(root)
    for line in lines:
        place, _, source = line.partition(" - ")
        columns, behind = place.split(" "), source.split(" ")
        if len(columns) < 6 or len(behind) < 3:
            continue
        where = columns[4].replace("\\040", " ")
        if os.path.commonpath([where, path]) == where and len(where) >= found[0]:
            options = [*columns[5].split(","), *behind[2].split(",")]
            found = (len(where), behind[0], options)
    return found[1:]


def _create(fs: FileSystem, path: str, content: bytes) -> None:
    with fs.open(path, OpenMode.CREATE) as file:
        file.pwrite(content, 0)
        file.sync()


def _remove(fs: FileSystem, *paths: str) -> None:
    for path in paths:
        if fs.stat(path) is not None:
            fs.remove(path)
