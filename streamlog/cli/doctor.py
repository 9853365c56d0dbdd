"""`streamlog doctor`: checks Python, packages, Spark's Python, Java and the log root.

The checks of a log root are in `streamlog.cli.root_checkup`.
"""

import importlib.metadata
import json
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, Final

import click

from streamlog.cli.output import EXIT_FINDING, Column, Output
from streamlog.cli.root_checkup import FAIL, OK, WARN, CheckupFinding, check_root_at
from streamlog.cli.verb import Settings, load
from streamlog.fs.local import LocalFileSystem
from streamlog.fs.log_root import LogRoot
from streamlog.root.read_roots import parse_roots

__all__ = ["check_machine", "doctor", "print_versions"]


def doctor(settings: Settings, warm_up: bool) -> None:  # noqa: FBT001 - called with keywords
    """Print the findings of all checks; exit with 1 on a failure."""
    if warm_up:
        load("warmup:warm_up")()
    found: list[tuple[str | None, CheckupFinding]] = [(None, each) for each in check_machine()]
    paths = () if settings.path is None else parse_roots(settings.path, LocalFileSystem())
    for path in paths:
        found += [(path, each) for each in check_root_at(LogRoot.at(path))]
    are_several = len(paths) > 1
    columns = (
        *([Column("root", "ROOT")] if are_several else []),
        Column("check", "CHECK"),
        Column("status", "STATUS"),
        Column("found", "FOUND"),
        Column("cure", "CURE"),
    )
    Output(settings).rows(
        [({"root": path} if are_several else {}) | each._asdict() for path, each in found], columns
    )
    if any(each.status == FAIL for _, each in found):
        click.get_current_context().exit(EXIT_FINDING)


_VERSIONS_OF: Final = ("pyspark", "pyarrow", "numpy", "numba")
LEAST_PYTHON: Final = (3, 10)
LEAST_PYSPARK: Final = (4, 2)
LEAST_JAVA: Final = 17
PROBE_TIMEOUT_S: Final = 120
_CORE: Final = (
    *("numpy", "numba", "pyarrow", "crc32c", "lz4", "python-snappy", "zstandard"),
    *("click", "rich"),
)
# Runs in the Python that Spark uses: any Python 3, with or without packages.
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
    """Check this Python, its packages, Spark's Python and Java."""
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
            "python", FAIL, found, "install Python 3.10 or newer and create a venv with it"
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
    """Look for the unrelated distribution `streamlog`, which overwrites this package."""
    stranger = _version("streamlog")
    ours = _version("pyspark-streamlog")
    if stranger is None and ours is None:
        found = "pyspark-streamlog is imported from a checkout, not installed"
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
        f"the unrelated package streamlog {stranger} is installed over pyspark-streamlog",
        f"{_pip('uninstall', '-y', 'streamlog')} && then reinstall pyspark-streamlog",
    )


def _check_pyspark() -> Iterator[CheckupFinding]:
    version = _version("pyspark")
    cure = _pip("install", "pyspark>=4.2", "pandas>=2.2,<3")
    if version is None:
        yield CheckupFinding("pyspark", WARN, "not installed; everything except Spark works", cure)
        return
    if _numbers(version)[:2] < LEAST_PYSPARK:
        yield CheckupFinding("pyspark", FAIL, f"{version}; 4.2 or newer is required", cure)
        return
    yield CheckupFinding("pyspark", OK, version)
    pandas = _version("pandas")
    if pandas is None or _numbers(pandas)[0] >= 3:
        found = "missing" if pandas is None else f"{pandas}; pyspark does not support it yet"
        yield CheckupFinding("pandas", WARN, found, _pip("install", "pandas>=2.2,<3"))


def _check_spark_python() -> Iterator[CheckupFinding]:
    """Check the Python that Spark starts to load `format("streamlog")`."""
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
        found += f" differs from this Python, {sys.version_info[0]}.{sys.version_info[1]}"
        yield CheckupFinding("spark's python", FAIL, found, cure)
    elif facts["pyarrow"] is None:
        yield CheckupFinding("spark's python", FAIL, f"{found} cannot import pyarrow", cure)
    else:
        yield CheckupFinding("spark's python", OK, f"{found} has streamlog {facts['streamlog']}")
        yield from _check_autoload(facts)
    yield from _check_neighbours(facts)


def _check_autoload(facts: dict[str, Any]) -> Iterator[CheckupFinding]:
    if "autoload" in facts:
        yield CheckupFinding("auto-registration", OK, "pyspark_streamlog can be imported there")
    elif facts.get("pyspark") is not None and "pyspark_streamlog" not in facts["broken"]:
        yield CheckupFinding(
            "auto-registration",
            FAIL,
            "pyspark_streamlog cannot be imported there, so Spark does not find the format",
            f"{_pip('install', '.', python=facts['executable'])}   (in the checkout)",
        )


def _check_neighbours(facts: dict[str, Any]) -> Iterator[CheckupFinding]:
    """Look for a broken `pyspark_…` package, which hides every Python data source from Spark."""
    if facts.get("pyspark") is None:
        return
    for name, error in facts["broken"].items():
        yield CheckupFinding(
            "neighbours",
            FAIL,
            f"{name} fails to import, which hides every Python data source: {error}",
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
    cure = "apt-get install openjdk-17-jre-headless   (or set JAVA_HOME to Java 17 or newer)"
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
        yield CheckupFinding(
            "java", FAIL, f"{found} at {java}; {LEAST_JAVA} or newer required", cure
        )
    else:
        yield CheckupFinding("java", OK, f"{version[1]} at {java}")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"[0-9]+", version)[:3])


def _pip(*words: str, python: str = sys.executable) -> str:
    return shlex.join([python, "-m", "pip", *words])


# ---- versions -----------------------------------------------------------------------------------
def print_versions() -> None:
    """Print the versions that a bug report needs."""
    click.echo(f"streamlog {_version('pyspark-streamlog') or 'not installed'}")
    click.echo(f"python {platform.python_version()}")
    for name in _VERSIONS_OF:
        click.echo(f"{name} {_version(name) or 'not installed'}")
