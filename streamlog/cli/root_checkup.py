"""What `streamlog doctor` checks of a log root: its file system, access, disk, and leftovers.

Each check yields findings and does not raise for a fault. File access is a log's access control,
so `doctor` also reports who can write to a root, and whether its disk keeps what a commit needs.
"""

import contextlib
import os
import re
import shlex
import stat
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from streamlog.errors import StreamLogError, UnavailableError
from streamlog.fs.api import FileKind, FileStat, FileSystem, OpenMode
from streamlog.fs.log_root import LogRoot
from streamlog.health.findings import Severity
from streamlog.health.verify import verify_state
from streamlog.root.directories import Holding, holding_of
from streamlog.root.roots import check_root, is_our_root, refuse_live_broker
from streamlog.root.topics import find_partitions
from streamlog.segment.filenames import KEPT_ASIDE
from streamlog.topic import PUT_ASIDE, parse_partition_directory
from streamlog.words import listed

__all__ = [
    "FAIL",
    "OK",
    "WARN",
    "CheckupFinding",
    "check_access",
    "check_look_alikes",
    "check_promises",
    "check_root_at",
]

FREE_MIN: Final = 1 << 30
_REMOTE: Final = {"nfs", "nfs4", "cifs", "smb2", "smb3", "9p", "v9fs", "fuseblk", "ceph", "lustre"}
_VOLATILE: Final = {"tmpfs", "ramfs"}
_UNFINISHED: Final = (".cleaned", ".swap", ".deleted", ".tmp")

OK: Final = "ok"
WARN: Final = "warning"
FAIL: Final = "failure"


class CheckupFinding(NamedTuple):
    """The result of a check, and a command or an advice that fixes a fault."""

    check: str
    status: str
    found: str
    cure: str | None = None


def check_root_at(root: LogRoot) -> Iterator[CheckupFinding]:
    """Check a log root; in one created by streamlog, also write files as a test."""
    try:
        root = replace(root, path=root.fs.resolve(root.path))
        check_root(root)
        partitions = find_partitions(root.fs, root.path)
    except StreamLogError as error:
        yield CheckupFinding(
            "root", FAIL, error.sentence, error.hint or f"ls -ld {shlex.quote(root.path)}"
        )
        return
    is_ours = is_our_root(root)
    count = sum(map(len, partitions.values()))
    kind = "a log root" if is_ours else "not created by streamlog: read-only"
    yield CheckupFinding(
        "root", OK, f"{root.path}: {kind}; topics: {len(partitions)}, partitions: {count}"
    )
    yield from _check_file_system(root)
    yield from check_access(root)
    yield from check_look_alikes(root, partitions)
    if is_ours:
        yield from _check_writing(root)
        yield from check_promises(root)
        yield from _check_state(root)
        yield from _check_staging(root)
    yield from _check_broker(root)
    yield from _check_leftovers(root, partitions)


def _check_file_system(root: LogRoot) -> Iterator[CheckupFinding]:
    try:
        done = subprocess.run(
            ["stat", "-f", "-c", "%T", root.path],
            capture_output=True,
            timeout=30,
            check=True,
            text=True,
        )
        kind = done.stdout.strip()
    except (OSError, subprocess.SubprocessError):
        kind = "unknown"
    if kind in _REMOTE:
        cure = "write from one host only, unless flock is known to work across hosts"
        yield CheckupFinding("file system", WARN, f"{kind}: a network file system", cure)
    elif kind in _VOLATILE:
        yield CheckupFinding("file system", WARN, f"{kind}: lost at a reboot", "use a disk")
    else:
        yield CheckupFinding("file system", OK, kind)
    found = os.statvfs(root.path)
    free = found.f_bavail * found.f_frsize
    status = OK if free >= FREE_MIN else WARN
    cure_space = None if status == OK else f"free space: df -h {shlex.quote(root.path)}"
    yield CheckupFinding("free space", status, f"{free >> 20} MiB", cure_space)


def _check_writing(root: LogRoot) -> Iterator[CheckupFinding]:
    path = root.probe()
    try:
        with root.fs.open(path, OpenMode.CREATE) as file:
            file.pwrite(b"streamlog doctor\n", 0)
            start = root.clock.monotonic_ms()
            file.sync()
            took = root.clock.monotonic_ms() - start
        root.fs.remove(path)
    except StreamLogError as error:
        yield CheckupFinding("writing", FAIL, str(error), f"ls -ld {shlex.quote(root.state)}")
        return
    yield CheckupFinding("writing", OK, f"works; a sync took {took:.1f} ms")


def _check_broker(root: LogRoot) -> Iterator[CheckupFinding]:
    try:
        refuse_live_broker(root)
    except UnavailableError as error:
        yield CheckupFinding("broker", WARN, str(error), "stop the broker before writing here")


def _check_state(root: LogRoot) -> Iterator[CheckupFinding]:
    """Check that settings, decisions, ledgers and readers can be read."""
    found: list[Any] = []
    try:
        verify_state(root, found.append, is_deep=False)
    except StreamLogError as error:
        yield CheckupFinding("state", FAIL, error.sentence, error.hint)
        return
    wrong = [each for each in found if each.severity is not Severity.NOTE]
    for each in wrong:
        status = FAIL if each.severity is Severity.DAMAGE else WARN
        where = os.path.relpath(each.path, root.path)
        cure = f"streamlog repair {shlex.quote(root.path)} --dry-run"
        yield CheckupFinding("state", status, f"{where}: {each.what}", cure)
    if not wrong:
        yield CheckupFinding("state", OK, "settings, decisions, ledgers and readers are readable")


def _check_staging(root: LogRoot) -> Iterator[CheckupFinding]:
    """Look for staged files of running or crashed commits."""
    staged = root.fs.list(root.staging)
    if staged:
        found = f"staged rows of {len(staged)} writers: {', '.join(staged[:5])}"
        cure = "none needed: the next commit, or 7 days, removes files of crashed writers"
        yield CheckupFinding("staging", WARN, found, cure)
    else:
        yield CheckupFinding("staging", OK, "no staged rows")


def _check_leftovers(
    root: LogRoot, partitions: dict[str, dict[int, str]]
) -> Iterator[CheckupFinding]:
    """Look for truncated tails, files of interrupted maintenance and partitions set aside."""
    aside = [
        f"{root.path}/{name}"
        for name in root.fs.list(root.path)
        if name.endswith(("-delete", *PUT_ASIDE))
    ]
    left = aside + [
        f"{path}/{name}"
        for numbers in partitions.values()
        for path in numbers.values()
        if root.fs.stat(root.fs.resolve(path)) is not None  # else reported under links
        for name in root.fs.list(path)
        if name.endswith(_UNFINISHED) or KEPT_ASIDE.search(name)
    ]
    if left:
        named = listed([os.path.relpath(path, root.path) for path in left], NAMED_MAX)
        cure = "inspect and remove *.torn-N and *.corrupt-N; the rest is removed automatically"
        if aside:
            cure += "; partitions set aside by a broker are the broker's to remove"
        yield CheckupFinding("leftovers", WARN, f"{len(left)}: {named}", cure)
    else:
        yield CheckupFinding("leftovers", OK, "none")


NAMED_MAX: Final = 5  # paths listed in a finding
SYNCS: Final = 5
IMPOSSIBLE_SYNC_MS: Final = 0.02  # faster than any device, even with a capacitor
PROBE_SIZE: Final = 4096
MOUNTS: Final = Path("/proc/self/mountinfo")
_CARELESS: Final = {"nobarrier", "barrier=0", "data=writeback"}
_PRELOADED: Final = ("eatmydata",)
_PARTITION_LIKE: Final = re.compile(r".+-\W?\d+", re.DOTALL)  # digits of any script


# ---- access -------------------------------------------------------------------------------------
def check_access(root: LogRoot) -> Iterator[CheckupFinding]:
    """Check modes, owners, links and file kinds below a root."""
    below = list(_below(root.fs, root.path))
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
        if (found.kind is FileKind.SYMLINK and not _is_linked_partition(root, path))
        or (found.kind is FileKind.FILE and found.links > 1 and path.endswith(".log"))
    ]
    odd = [path for path, found in below if found.kind is FileKind.OTHER]
    where = shlex.quote(root.path)
    yield _some("modes", FAIL, writable, root, "world-writable", f"chmod -R o-w {where}")
    yield _some(
        *("owners", WARN, foreign, root, f"not of user {owner}, who owns the root"),
        f"chown -R --no-dereference {owner} {where}   (unless intended)",
    )
    yield _some(
        *("links", FAIL, links, root, "symbolic links, or segments with a second hard link"),
        "check the targets: only a link to a directory with a log is followed, and only as a "
        "partition; a hard-linked segment changes under both names",
    )
    yield _some(
        *("kinds", FAIL, odd, root, "pipes, sockets or devices"),
        "remove them; streamlog never opens them",
    )


def _is_linked_partition(root: LogRoot, path: str) -> bool:
    """Return whether a link is followed: named like a partition, to a directory with a log."""
    if (
        os.path.dirname(path) != root.path
        or parse_partition_directory(os.path.basename(path)) is None
    ):
        return False
    with contextlib.suppress(StreamLogError):  # dangling link
        return holding_of(root.fs, path) is Holding.LOG
    return False


def check_look_alikes(root: LogRoot, topics: Iterable[str]) -> Iterator[CheckupFinding]:
    """Look for names in a root that can be mistaken for others."""
    known = {*topics}
    odd = [
        os.path.join(root.path, name)
        for name in root.fs.list(root.path)
        if _PARTITION_LIKE.fullmatch(name) and not _is_partition_of(name, known)
    ]
    cure = "streamlog ignores them; find out their origin and move them out of the root"
    yield _some("look-alikes", WARN, odd, root, "named like a partition of no topic here", cure)
    alike = defaultdict[str, list[str]](list)
    for name in sorted(known):
        alike[name.casefold().replace(".", "_")].append(name)
    for names in alike.values():
        if len(names) > 1:
            found = f"topic names that differ only in case or in . and _: {', '.join(names)}"
            cure = "check the name you pass; a broker merges . and _ in metric names"
            yield CheckupFinding("look-alikes", WARN, found, cure)


def _is_partition_of(name: str, topics: set[str]) -> bool:
    partition = parse_partition_directory(name)
    return partition is not None and partition.topic in topics


def _below(fs: FileSystem, path: str) -> Iterator[tuple[str, FileStat]]:
    """Yield a path and everything below it; symbolic links are yielded, not followed."""
    found = fs.stat(path)
    if found is None:
        return
    yield path, found
    if found.kind is FileKind.DIRECTORY:
        for name in fs.list(path):
            yield from _below(fs, os.path.join(path, name))


def _some(
    check: str, status: str, paths: list[str], root: LogRoot, what: str, cure: str
) -> CheckupFinding:
    if not paths:
        return CheckupFinding(check, OK, "nothing unusual")
    named = listed([os.path.relpath(path, root.path) for path in sorted(paths)], NAMED_MAX)
    return CheckupFinding(check, status, f"{what}: {len(paths)} ({named})", cure)


# ---- the disk -----------------------------------------------------------------------------------
def check_promises(root: LogRoot) -> Iterator[CheckupFinding]:
    """Test the file operations that every commit relies on; removes its test files."""
    yield from _check_names(root)
    yield from _check_locks(root)
    yield from _check_syncs(root)


def _check_names(root: LogRoot) -> Iterator[CheckupFinding]:
    """Test hard links, which make decisions, and replacing renames, which make checkpoints."""
    one = root.probe()
    other = root.probe()
    try:
        _create(root.fs, one, b"one")
        root.fs.link(one, other)
        root.fs.remove(one)
        _create(root.fs, one, b"two")
        root.fs.rename(one, other)
        root.fs.sync_directory(root.state)
        with root.fs.open(other, OpenMode.READ) as file:
            is_kept = file.pread(4, 0) == b"two" and root.fs.stat(one) is None
    except StreamLogError as error:
        cure = "use a file system with hard links and atomic renames: ext4, XFS, btrfs"
        yield CheckupFinding("names", FAIL, str(error), cure)
        return
    finally:
        with contextlib.suppress(StreamLogError):
            _remove(root.fs, one, other)
    if is_kept:
        yield CheckupFinding("names", OK, "hard links and atomic replacement work")
    else:
        yield CheckupFinding("names", FAIL, "a rename did not replace the target file", None)


def _check_locks(root: LogRoot) -> Iterator[CheckupFinding]:
    path = root.probe()
    try:
        lock = root.fs.try_lock(path, shared=False)
        second = root.fs.try_lock(path, shared=False)
        for each in (lock, second):
            if each is not None:
                each.release()
        _remove(root.fs, path)
    except StreamLogError as error:
        yield CheckupFinding("locks", FAIL, str(error), "mount with locking (NFS: version 4)")
        return
    if lock is None or second is not None:
        cure = "mount with locking; until then write from a single process"
        yield CheckupFinding("locks", FAIL, "two handles hold the same exclusive lock", cure)
    else:
        yield CheckupFinding("locks", OK, "exclusive locks work")


def _check_syncs(root: LogRoot) -> Iterator[CheckupFinding]:
    """Look for signs that a sync is not durable."""
    preloaded = os.environ.get("LD_PRELOAD", "")
    if any(name in preloaded for name in _PRELOADED):
        found = f"LD_PRELOAD={preloaded}: syncs do nothing in this process"
        yield CheckupFinding("sync", FAIL, found, "unset LD_PRELOAD")
        return
    kind, options = _mount_of(root.path)
    careless = sorted(_CARELESS.intersection(options))
    if careless:
        cure = f"mount without: mount -o remount,barrier=1 {shlex.quote(root.path)}"
        yield CheckupFinding("sync", WARN, f"mounted with {', '.join(careless)}", cure)
        return
    try:
        fastest_ms = _fastest_sync(root)
    except StreamLogError as error:
        yield CheckupFinding(
            "sync", FAIL, str(error), f"dmesg | tail; df -h {shlex.quote(root.path)}"
        )
        return
    if fastest_ms < IMPOSSIBLE_SYNC_MS and kind not in ("tmpfs", "ramfs"):
        found = f"{fastest_ms * 1000:.0f} µs for {PROBE_SIZE} bytes: too fast for any device"
        yield CheckupFinding("sync", FAIL, found, "check the layers below the file system")
    else:
        yield CheckupFinding(
            "sync", OK, f"{fastest_ms:.2f} ms; durability after a power cut cannot be tested"
        )


def _fastest_sync(root: LogRoot) -> float:
    path = root.probe()
    took = []
    with root.fs.open(path, OpenMode.CREATE) as file:
        for number in range(SYNCS):
            file.pwrite(bytes(PROBE_SIZE), number * PROBE_SIZE)
            start = root.clock.monotonic_ms()
            file.sync()
            took.append(root.clock.monotonic_ms() - start)
    _remove(root.fs, path)
    return min(took)


def _mount_of(root: str) -> tuple[str, list[str]]:
    """Return type and options of the file system mounted at a path (Linux only)."""
    try:
        lines = MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return "unknown", []
    found: tuple[int, str, list[str]] = (0, "unknown", [])
    path = os.path.realpath(root)
    for line in lines:
        place, _, source = line.partition(" - ")
        columns, device = place.split(" "), source.split(" ")
        if len(columns) < 6 or len(device) < 3:
            continue
        where = columns[4].replace("\\040", " ")
        if os.path.commonpath([where, path]) == where and len(where) >= found[0]:
            options = [*columns[5].split(","), *device[2].split(",")]
            found = (len(where), device[0], options)
    return found[1:]


def _create(fs: FileSystem, path: str, content: bytes) -> None:
    with fs.open(path, OpenMode.CREATE) as file:
        file.pwrite(content, 0)
        file.sync()


def _remove(fs: FileSystem, *paths: str) -> None:
    for path in paths:
        if fs.stat(path) is not None:
            fs.remove(path)
