"""Try the wheel with each version of Spark, Python and pyarrow that it allows.

    python -m tests.programs.matrix [--list] [--only WORDS]…

`--only spark=4.3,python=3.13` selects the cells with these versions; several add up. A cell is an
environment of its own in `.cache/matrix`, with the newest release of every other dependency, where
`smoke.py` runs against the installed wheel.

A cell that Spark does not offer (Spark 4.3 has no Python 3.10) is shown as such. One that cannot
be tried here, without that Python for example, is a failure of the run, not of streamlog: it counts
as not available, and the exit code is 1 for both.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.meta.repository import ROOT
from tests.support.environments import environment

CACHE = ROOT / ".cache" / "matrix"
SMOKE = Path(__file__).with_name("smoke.py")
SPARKS = ("4.2.0", "4.2.1", "4.3.0")
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
PYARROWS = ("oldest", "newest")
LEAST_PYTHON = {"4.3.0": (3, 11)}  # `Requires-Python` of a Spark that is above ours
TIMEOUT_S = 1_800
# A JVM that lives for a minute is faster without optimizing compilation.
JAVA = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}

PASSED, FAILED, NOT_AVAILABLE, NOT_OFFERED = "passed", "FAILED", "NOT AVAILABLE", "not offered"


class Cell(NamedTuple):
    """One combination of versions; `pyarrow` is `oldest` or `newest`."""

    spark: str
    python: str
    pyarrow: str

    def matches(self, selection: dict[str, str]) -> bool:
        """Return whether each named version is that of this cell, or begins it."""
        return all(
            f"{self._asdict()[name]}.".startswith(f"{version}.")
            for name, version in selection.items()
        )

    @property
    def is_offered(self) -> bool:
        """Whether this Spark runs on this Python."""
        number = tuple(map(int, self.python.split(".")))
        return number >= LEAST_PYTHON.get(self.spark, (3, 10))

    def __str__(self) -> str:
        return f"spark={self.spark},python={self.python},pyarrow={self.pyarrow}"


class Outcome(NamedTuple):
    """What became of a cell: one of the four words, the versions or the reason, the time."""

    cell: Cell
    verdict: str
    detail: str
    seconds: float = 0.0


CELLS = tuple(
    Cell(spark, python, pyarrow) for spark in SPARKS for python in PYTHONS for pyarrow in PYARROWS
)


def find_python(version: str) -> Path | None:
    """Return an interpreter of this version that runs: from PATH, pyenv or uv."""
    homes = [
        Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions",
        Path.home() / ".local" / "share" / "uv" / "python",
    ]
    on_path = shutil.which(f"python{version}")
    found = [Path(on_path)] if on_path else []
    for home in homes:
        found += sorted(home.glob(f"*{version}.*/bin/python{version}"))
    ask = "import sys, venv; print('%d.%d' % sys.version_info[:2])"
    for python in found:
        answer = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=False)
        if answer.stdout.strip() == version:
            return python
    return None


def oldest_pyarrow() -> str:
    """Return the oldest pyarrow that pyproject.toml allows."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (major,) = re.findall(r'"pyarrow>=(\d+)"', text)
    return f"{major}.0.0"


def build_wheel(target: Path) -> Path:
    """Build the wheel of this checkout into `target`."""
    tools = environment("dist")
    build = (tools / "python", "-m", "build", "--no-isolation", "--wheel", "--outdir", target)
    run(*build, ROOT)
    (wheel,) = target.glob("*.whl")
    return wheel


def install(cell: Cell, python: Path, wheel: Path) -> Path:
    """Return the Python of the cell's environment, with this wheel and the newest of all else.

    Raises:
        subprocess.CalledProcessError: The packages cannot be had.
    """
    uv = environment("matrix") / "uv"
    folder = CACHE / str(cell)
    ours = folder / "bin" / "python"
    if not ours.exists():
        shutil.rmtree(folder, ignore_errors=True)
        run(uv, "venv", "--quiet", "--python", python, folder)
    pyarrow = [f"pyarrow=={oldest_pyarrow()}"] if cell.pyarrow == "oldest" else []
    pip = (uv, "pip", "install", "--quiet", "--upgrade", "--python", ours)
    packages = (f"{wheel}[spark]", f"pyspark[connect]=={cell.spark}", *pyarrow)
    run(*pip, "--reinstall-package", "pyspark-streamlog", *packages)
    return ours


def run(*command: object) -> str:
    """Run a command; return what it printed.

    Raises:
        subprocess.CalledProcessError: It failed.
    """
    words = list(map(str, command))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        words, env=kept | JAVA, capture_output=True, text=True, check=True, timeout=TIMEOUT_S
    )
    return done.stdout


def try_cell(cell: Cell, wheel: Path) -> Outcome:
    """Install what the cell says and run the checks there."""
    if not cell.is_offered:
        least = ".".join(map(str, LEAST_PYTHON[cell.spark]))
        return Outcome(cell, NOT_OFFERED, f"Spark {cell.spark} needs Python {least} or newer")
    python = find_python(cell.python)
    if python is None:
        return Outcome(cell, NOT_AVAILABLE, f"no Python {cell.python} on PATH, in pyenv or uv")
    try:
        installed = install(cell, python, wheel)
    except subprocess.CalledProcessError as error:
        return Outcome(cell, NOT_AVAILABLE, error.stderr.strip()[-400:])
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        try:
            printed = run(installed, SMOKE, scratch)
        except subprocess.CalledProcessError as error:
            verdict, detail = FAILED, f"{error.stdout}{error.stderr[-3_000:]}"
        except subprocess.TimeoutExpired:
            verdict, detail = FAILED, f"not done after {TIMEOUT_S} s"
        else:
            versions, *checks = printed.splitlines()
            verdict, detail = PASSED, f"{versions}: {' '.join(checks)}"
    return Outcome(cell, verdict, detail, time.monotonic() - start)


def selected(only: list[str]) -> Iterator[Cell]:
    """Yield the cells that any of the selections names.

    Raises:
        ValueError: A selection has another form, or selects nothing.
    """
    selections = []
    for words in only:
        pairs = [word.partition("=") for word in words.split(",")]
        selection = {name: version for name, _, version in pairs}
        is_known = selection.keys() <= set(Cell._fields) and all(selection.values())
        if not is_known or not any(cell.matches(selection) for cell in CELLS):
            raise ValueError(f"--only {words}: no such cell; expected spark=4.3,python=3.13")
        selections.append(selection)
    for cell in CELLS:
        if not selections or any(cell.matches(selection) for selection in selections):
            yield cell


def main(arguments: list[str]) -> int:
    """Try the selected cells, print a line for each; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.programs.matrix")
    parser.add_argument("--list", action="store_true", help="print the cells and run nothing")
    parser.add_argument("--only", action="append", default=[], metavar="spark=…,python=…,pyarrow=…")
    given = parser.parse_args(arguments)
    try:
        cells = list(selected(given.only))
    except ValueError as error:
        parser.error(str(error))
    if given.list:
        for cell in cells:
            print(cell if cell.is_offered else f"{cell} ({NOT_OFFERED})")
        return 0
    verdicts = []
    with tempfile.TemporaryDirectory() as scratch:
        wheel = build_wheel(Path(scratch))
        for cell in cells:
            outcome = try_cell(cell, wheel)
            verdicts.append(outcome.verdict)
            print(
                f"{outcome.verdict:<13} {cell.spark} {cell.python:<4} {cell.pyarrow}"
                f" {outcome.seconds:6.0f} s  {outcome.detail}",
                flush=True,
            )
    counts = ", ".join(f"{verdicts.count(word)} {word}" for word in dict.fromkeys(verdicts))
    print(f"{len(cells)} cells: {counts}")
    return int(not set(verdicts) <= {PASSED, NOT_OFFERED})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
