"""What `doctor` looks at: the Pythons, Java, the neighbours, and the log root.

Each check is a function that returns findings; none raises because something is wrong.
"""

import importlib.metadata
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, Final

from streamlog.cli.checkup_findings import FAIL, OK, WARN, CheckupFinding
from streamlog.cli.root_safety import check_access, check_look_alikes, check_promises
from streamlog.clock import SystemClock
from streamlog.errors import StreamLogError, UnavailableError
from streamlog.fs.api import FileSystem, OpenMode
from streamlog.fs.names import temporary_path
from streamlog.partition.locks import refuse_live_broker
from streamlog.root.roots import check_root, is_our_root, state_path
from streamlog.root.topics import find_partitions
from streamlog.segment.filenames import KEPT_ASIDE
from streamlog.topic import PUT_ASIDE

__all__ = ["check_machine", "check_root_at"]

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
        check_root(fs, root)
        partitions = find_partitions(fs, root)
    except StreamLogError as error:
        yield CheckupFinding(
            "root", FAIL, error.sentence, error.hint or f"ls -ld {shlex.quote(root)}"
        )
        return
    is_ours = is_our_root(fs, root)
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
    path = temporary_path(state_path(root, "doctor"))
    clock = SystemClock()
    try:
        with fs.open(path, OpenMode.CREATE) as file:
            file.pwrite(b"streamlog doctor\n", 0)
            start = clock.monotonic_ms()
            file.sync()
            took = clock.monotonic_ms() - start
        fs.remove(path)
    except StreamLogError as error:
        yield CheckupFinding("writing", FAIL, str(error), f"ls -ld {shlex.quote(state_path(root))}")
        return
    yield CheckupFinding("writing", OK, f"works; a sync took {took:.1f} ms")


def _check_broker(fs: FileSystem, root: str) -> Iterator[CheckupFinding]:
    try:
        refuse_live_broker(fs, root)
    except UnavailableError as error:
        yield CheckupFinding("broker", WARN, str(error), "stop the broker before writing here")


def _check_state(fs: FileSystem, root: str) -> Iterator[CheckupFinding]:
    """Look whether settings, decisions, ledgers and readers can be read."""
    from streamlog.health.findings import Severity
    from streamlog.health.verify import verify_state

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
    staged = fs.list(state_path(root, "staging"))
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
