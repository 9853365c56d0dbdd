"""`streamlog doctor`: will it work here, and if not, what to type."""

import contextlib
import importlib.metadata
import json
import os
import platform
import re
import shlex
import stat
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from streamlog.cli.output import EXIT_FINDING, Column, Output
from streamlog.cli.verb import Settings, load
from streamlog.clock import Clock, SystemClock
from streamlog.errors import StreamLogError, UnavailableError
from streamlog.fs.api import FileKind, FileStat, FileSystem, OpenMode
from streamlog.fs.local import LocalFileSystem
from streamlog.fs.log_root import LogRoot
from streamlog.health.findings import Severity
from streamlog.health.verify import verify_state
from streamlog.root.directories import Holding, holding_of
from streamlog.root.roots import check_root, is_our_root, refuse_live_broker
from streamlog.root.topics import find_partitions
from streamlog.segment.filenames import KEPT_ASIDE
from streamlog.topic import PUT_ASIDE, parse_partition_directory

__all__ = [
    "check_access",
    "check_look_alikes",
    "check_machine",
    "check_promises",
    "check_root_at",
    "doctor",
    "print_versions",
]


def doctor(settings: Settings, warm_up: bool) -> None:  # noqa: FBT001 - click's way
    """Print a finding for each check."""
    if warm_up:
        load("warmup:warm_up")()
    findings = list(check_machine())
    if settings.path is not None:
        findings += check_root_at(LocalFileSystem(), settings.path)
    columns = (
        Column("check", "CHECK"),
        Column("status", "STATUS"),
        Column("found", "FOUND"),
        Column("cure", "CURE"),
    )
    Output(settings).rows([finding._asdict() for finding in findings], columns)
    if any(finding.status == FAIL for finding in findings):
        click.get_current_context().exit(EXIT_FINDING)


OK: Final = "ok"
WARN: Final = "warning"
FAIL: Final = "failure"


class CheckupFinding(NamedTuple):
    """What a check found, and the line that cures it."""

    check: str
    status: str
    found: str
    cure: str | None = None


_VERSIONS_OF: Final = ("pyspark", "pyarrow", "numpy", "numba")
LEAST_PYTHON: Final = (3, 10)
LEAST_PYSPARK: Final = (4, 2)
LEAST_JAVA: Final = 17
PROBE_TIMEOUT_S: Final = 120
FREE_MIN: Final = 1 << 30
_CORE: Final = (
    *("numpy", "numba", "pyarrow", "crc32c", "lz4", "python-snappy", "zstandard"),
    *("click", "rich"),
)
_REMOTE: Final = {"nfs", "nfs4", "cifs", "smb2", "smb3", "9p", "v9fs", "fuseblk", "ceph", "lustre"}
_VOLATILE: Final = {"tmpfs", "ramfs"}
_UNFINISHED: Final = (".cleaned", ".swap", ".deleted", ".tmp")


# Runs in the Python that Spark will ask; must do in any Python 3, with or without packages.
_PROBE: Final = """
import importlib, json, pkgutil, sys
found = {"executable": sys.executable, "version": list(sys.version_info[:3]), "broken": {}}
try:
    import streamlog
    found["streamlog"] = streamlog.__version__
except Exception as error:
    found["streamlog_error"] = repr(error)
for module in pkgutil.iter_modules():
    if module.name.startswith("pyspark_"):
        try:
            loaded = importlib.import_module(module.name)
            if module.name == "pyspark_streamlog":
                found["autoload"] = loaded.DefaultSource.__name__
        except BaseException as error:
            found["broken"][module.name] = repr(error)
for name in ("pyspark", "pyarrow", "pandas"):
    try:
        found[name] = importlib.import_module(name).__version__
    except Exception:
        found[name] = None
print(json.dumps(found))
"""


# ---- the machine ------------------------------------------------------------------------------
def check_machine() -> Iterator[CheckupFinding]:
    """Yield what there is to say about this Python, its packages, Spark's Python and Java."""
    yield from _check_python()
    yield from _check_packages()
    yield from _check_strangers()
    yield from _check_pyspark()
    yield from _check_spark_python()
    yield from _check_java()


def _check_python() -> Iterator[CheckupFinding]:
    version = ".".join(map(str, sys.version_info[:3]))
    found = f"{version} at {sys.executable}"
    if sys.version_info[:2] < LEAST_PYTHON:
        yield CheckupFinding(
            "python", FAIL, found, "install Python 3.10 or newer, make a venv with it"
        )
    else:
        yield CheckupFinding("python", OK, found)


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _check_packages() -> Iterator[CheckupFinding]:
    versions = {name: _version(name) for name in _CORE}
    missing = [name for name, version in versions.items() if version is None]
    if missing:
        found = f"missing: {', '.join(missing)}"
        yield CheckupFinding("packages", FAIL, found, _pip("install", *missing))
    else:
        found = ", ".join(f"{name} {version}" for name, version in versions.items())
        yield CheckupFinding("packages", OK, found)


def _check_strangers() -> Iterator[CheckupFinding]:
    """Look for the distribution `streamlog`, which is not ours and overwrites our package."""
    stranger = _version("streamlog")
    ours = _version("pyspark-streamlog")
    if stranger is None and ours is None:
        found = "pyspark-streamlog is not installed, only imported from a checkout"
        yield CheckupFinding(
            "distribution", WARN, found, f"{_pip('install', '.')}   (in the checkout)"
        )
        return
    if stranger is None:
        yield CheckupFinding("distribution", OK, f"pyspark-streamlog {ours}")
        return
    yield CheckupFinding(
        "distribution",
        FAIL,
        f"a stranger's package called streamlog {stranger} is installed in the same place",
        f"{_pip('uninstall', '-y', 'streamlog')} && then install pyspark-streamlog once more",
    )


def _check_pyspark() -> Iterator[CheckupFinding]:
    version = _version("pyspark")
    cure = _pip("install", "pyspark>=4.2", "pandas>=2.2,<3")
    if version is None:
        yield CheckupFinding("pyspark", WARN, "not installed: no Spark, the rest works", cure)
        return
    if _numbers(version)[:2] < LEAST_PYSPARK:
        yield CheckupFinding("pyspark", FAIL, f"{version}, and 4.2 is needed", cure)
        return
    yield CheckupFinding("pyspark", OK, version)
    pandas = _version("pandas")
    if pandas is None or _numbers(pandas)[0] >= 3:
        found = "missing" if pandas is None else f"{pandas}, which pyspark does not yet support"
        yield CheckupFinding("pandas", WARN, found, _pip("install", "pandas>=2.2,<3"))


def _check_spark_python() -> Iterator[CheckupFinding]:
    """Ask the Python that Spark will ask for `format("streamlog")`, if nobody tells it better."""
    asked = os.environ.get("PYSPARK_PYTHON") or "python3"
    source = "PYSPARK_PYTHON" if os.environ.get("PYSPARK_PYTHON") else "python3 on PATH"
    cure = f"export PYSPARK_PYTHON={shlex.quote(sys.executable)}"
    facts = _probe(asked)
    if facts is None:
        yield CheckupFinding("spark's python", FAIL, f"{asked} ({source}) does not run", cure)
        return
    version = ".".join(map(str, facts["version"]))
    found = f"{version} at {facts['executable']} ({source})"
    if "streamlog" not in facts:
        found += f" cannot import streamlog: {facts['streamlog_error']}"
        yield CheckupFinding(
            "spark's python", FAIL, found, f"{cure}   (or use streamlog.spark.session())"
        )
    elif tuple(facts["version"][:2]) != sys.version_info[:2]:
        found += f" is another version than this one, {sys.version_info[0]}.{sys.version_info[1]}"
        yield CheckupFinding("spark's python", FAIL, found, cure)
    elif facts["pyarrow"] is None:
        yield CheckupFinding("spark's python", FAIL, f"{found} cannot import pyarrow", cure)
    else:
        yield CheckupFinding("spark's python", OK, f"{found} has streamlog {facts['streamlog']}")
        yield from _check_autoload(facts)
    yield from _check_neighbours(facts)


def _check_autoload(facts: dict[str, Any]) -> Iterator[CheckupFinding]:
    if "autoload" in facts:
        yield CheckupFinding("auto-registration", OK, "pyspark_streamlog is importable there")
    elif facts.get("pyspark") is not None and "pyspark_streamlog" not in facts["broken"]:
        yield CheckupFinding(
            "auto-registration",
            FAIL,
            "pyspark_streamlog is not importable there, so Spark does not find the format",
            f"{_pip('install', '.', python=facts['executable'])}   (in the checkout)",
        )


def _check_neighbours(facts: dict[str, Any]) -> Iterator[CheckupFinding]:
    """One broken `pyspark_…` package keeps Spark from finding any Python data source."""
    if facts.get("pyspark") is None:
        return
    for name, error in facts["broken"].items():
        yield CheckupFinding(
            "neighbours",
            FAIL,
            f"{name} does not import, which hides every Python data source: {error}",
            _pip("uninstall", name.replace("_", "-"), python=facts["executable"]),
        )
    if not facts["broken"]:
        yield CheckupFinding("neighbours", OK, "no broken pyspark_… package")


def _probe(python: str) -> dict[str, Any] | None:
    try:
        done = subprocess.run(
            [python, "-W", "ignore", "-c", _PROBE],
            capture_output=True,
            timeout=PROBE_TIMEOUT_S,
            check=True,
            cwd="/",
        )
        facts = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return None
    return facts if isinstance(facts, dict) else None


def _check_java() -> Iterator[CheckupFinding]:
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else "java"
    cure = "apt-get install openjdk-17-jre-headless   (or set JAVA_HOME to a Java 17 or newer)"
    try:
        done = subprocess.run(
            [java, "-version"], capture_output=True, timeout=PROBE_TIMEOUT_S, check=True, text=True
        )
    except (OSError, subprocess.SubprocessError):
        yield CheckupFinding("java", FAIL, f"{java} does not run", cure)
        return
    version = re.search(r'version "(?:1\.)?([0-9]+)[^"]*"', done.stderr)
    if version is None or int(version[1]) < LEAST_JAVA:
        found = "unknown" if version is None else version[1]
        yield CheckupFinding("java", FAIL, f"{found} at {java}, and {LEAST_JAVA} is needed", cure)
    else:
        yield CheckupFinding("java", OK, f"{version[1]} at {java}")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"[0-9]+", version)[:3])


def _pip(*words: str, python: str = sys.executable) -> str:
    return shlex.join([python, "-m", "pip", *words])


# ---- the log root -----------------------------------------------------------------------------
def check_root_at(fs: FileSystem, root: str) -> Iterator[CheckupFinding]:
    """Yield what there is to say about a log root; one of ours is tried by writing a file.

    Args:
        fs: Where it is.
        root: Its directory.
    """
    try:
        root = fs.resolve(root)
        check_root(LogRoot.at(root, fs=fs))
        partitions = find_partitions(fs, root)
    except StreamLogError as error:
        yield CheckupFinding(
            "root", FAIL, error.sentence, error.hint or f"ls -ld {shlex.quote(root)}"
        )
        return
    is_ours = is_our_root(LogRoot.at(root, fs=fs))
    count = sum(map(len, partitions.values()))
    kind = "a log root" if is_ours else "not made by streamlog, so it is only read"
    yield CheckupFinding(
        "root", OK, f"{root}: {kind}; topics: {len(partitions)}, partitions: {count}"
    )
    yield from _check_file_system(root)
    yield from check_access(fs, root)
    yield from check_look_alikes(fs, root, partitions)
    if is_ours:
        yield from _check_writing(fs, root)
        yield from check_promises(fs, root)
        yield from _check_state(fs, root)
        yield from _check_staging(fs, root)
    yield from _check_broker(fs, root)
    yield from _check_leftovers(fs, root, partitions)


def _check_file_system(root: str) -> Iterator[CheckupFinding]:
    try:
        done = subprocess.run(
            ["stat", "-f", "-c", "%T", root], capture_output=True, timeout=30, check=True, text=True
        )
        kind = done.stdout.strip()
    except (OSError, subprocess.SubprocessError):
        kind = "unknown"
    if kind in _REMOTE:
        cure = "several hosts may read; let one host write, unless its flock is known to hold"
        yield CheckupFinding("file system", WARN, f"{kind}, over a network", cure)
    elif kind in _VOLATILE:
        yield CheckupFinding("file system", WARN, f"{kind}: gone after a reboot", "use a disk")
    else:
        yield CheckupFinding("file system", OK, kind)
    found = os.statvfs(root)
    free = found.f_bavail * found.f_frsize
    status = OK if free >= FREE_MIN else WARN
    cure_space = None if status == OK else f"make room: df -h {shlex.quote(root)}"
    yield CheckupFinding("free space", status, f"{free >> 20} MiB", cure_space)


def _check_writing(fs: FileSystem, root: str) -> Iterator[CheckupFinding]:
    path = LogRoot.at(root, fs=fs).probe()
    clock = SystemClock()
    try:
        with fs.open(path, OpenMode.CREATE) as file:
            file.pwrite(b"streamlog doctor\n", 0)
            start = clock.monotonic_ms()
            file.sync()
            took = clock.monotonic_ms() - start
        fs.remove(path)
    except StreamLogError as error:
        yield CheckupFinding(
            "writing", FAIL, str(error), f"ls -ld {shlex.quote(LogRoot.at(root, fs=fs).state)}"
        )
        return
    yield CheckupFinding("writing", OK, f"works; a sync took {took:.1f} ms")


def _check_broker(fs: FileSystem, root: str) -> Iterator[CheckupFinding]:
    try:
        refuse_live_broker(LogRoot.at(root, fs=fs))
    except UnavailableError as error:
        yield CheckupFinding("broker", WARN, str(error), "stop the broker before writing here")


def _check_state(fs: FileSystem, root: str) -> Iterator[CheckupFinding]:
    """Look whether settings, decisions, ledgers and readers can be read."""
    found: list[Any] = []
    try:
        verify_state(fs, root, found.append, is_deep=False)
    except StreamLogError as error:
        yield CheckupFinding("state", FAIL, error.sentence, error.hint)
        return
    wrong = [each for each in found if each.severity is not Severity.NOTE]
    for each in wrong:
        status = FAIL if each.severity is Severity.DAMAGE else WARN
        where = os.path.relpath(each.path, root)
        cure = f"streamlog repair {shlex.quote(root)} --dry-run"
        yield CheckupFinding("state", status, f"{where}: {each.what}", cure)
    if not wrong:
        yield CheckupFinding("state", OK, "settings, decisions, ledgers and readers can be read")


def _check_staging(fs: FileSystem, root: str) -> Iterator[CheckupFinding]:
    """Look for files that commits in progress, or ones that died, have left."""
    staged = fs.list(LogRoot.at(root, fs=fs).staging)
    if staged:
        found = f"staged rows of {len(staged)} writers: {', '.join(staged[:5])}"
        cure = "nothing, if they run; what died is dropped by the next commit, or after 7 days"
        yield CheckupFinding("staging", WARN, found, cure)
    else:
        yield CheckupFinding("staging", OK, "no staged rows left behind")


def _check_leftovers(
    fs: FileSystem, root: str, partitions: dict[str, dict[int, str]]
) -> Iterator[CheckupFinding]:
    """Look for files of cut tails and of interrupted maintenance, and partitions set aside."""
    aside = [f"{root}/{name}" for name in fs.list(root) if name.endswith(("-delete", *PUT_ASIDE))]
    left = aside + [
        f"{path}/{name}"
        for numbers in partitions.values()
        for path in numbers.values()
        if fs.stat(fs.resolve(path)) is not None  # else told as a link
        for name in fs.list(path)
        if name.endswith(_UNFINISHED) or KEPT_ASIDE.search(name)
    ]
    if left:
        listed = ", ".join(os.path.relpath(path, root) for path in left[:5])
        more = ", …" if len(left) > 5 else ""
        cure = "look at what is torn or corrupt, then remove it; the rest goes by itself"
        if aside:
            cure += "; of partitions a broker has set aside, it is the broker who decides"
        yield CheckupFinding("leftovers", WARN, f"{len(left)}: {listed}{more}", cure)
    else:
        yield CheckupFinding("leftovers", OK, "none")


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
    one = LogRoot.at(root, fs=fs).probe()
    other = LogRoot.at(root, fs=fs).probe()
    try:
        _create(fs, one, b"one")
        fs.link(one, other)
        fs.remove(one)
        _create(fs, one, b"two")
        fs.rename(one, other)
        fs.sync_directory(LogRoot.at(root, fs=fs).state)
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
    path = LogRoot.at(root, fs=fs).probe()
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
    path = LogRoot.at(root, fs=fs).probe()
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


# ---- versions -----------------------------------------------------------------------------------
def print_versions() -> None:
    """Print the versions of streamlog, Python and the packages that the reader may be asked for."""
    click.echo(f"streamlog {_version('pyspark-streamlog') or 'not installed'}")
    click.echo(f"python {platform.python_version()}")
    for name in _VERSIONS_OF:
        click.echo(f"{name} {_version(name) or 'not installed'}")
