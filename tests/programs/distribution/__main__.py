"""Make what is published, and try it: `python -m tests.programs.distribution`, or `make dist`.

1. Build wheel and source archive into `dist/packages`, and check their metadata.
2. Install the wheel, with the newest dependencies that it allows, in a new environment.
3. Run `streamlog demo` there, with nothing compiled before, and print the time.
4. Write the bill of materials of that environment to `dist/bom.json`.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.meta.repository import ROOT
from tests.support.environments import environment

DIST = ROOT / "dist"


def build_packages(target: Path) -> list[Path]:
    """Build and check wheel and source archive.

    Raises:
        subprocess.CalledProcessError: A command failed.
    """
    tools = environment("dist")
    run(tools / "python", "-m", "build", "--no-isolation", "--outdir", target, ROOT)
    packages = sorted(target.iterdir())
    run(tools / "twine", "check", "--strict", *packages)
    return packages


def try_wheel(wheel: Path, scratch: Path) -> float:
    """Install a wheel in a new environment, and run the demo there.

    Returns:
        The seconds that the demo took.

    Raises:
        subprocess.CalledProcessError: A command failed.
    """
    run(sys.executable, "-m", "venv", scratch / "installed")
    programs = scratch / "installed" / "bin"
    run(programs / "pip", "install", "--quiet", wheel)
    caches = {"HOME": str(scratch), "XDG_CACHE_HOME": str(scratch / "cache")}
    run(programs / "streamlog", "--version", cwd=scratch, **caches)
    start = time.monotonic()
    run(programs / "streamlog", "demo", "--path", scratch / "log", cwd=scratch, **caches)
    return time.monotonic() - start


def write_bill(scratch: Path, target: Path) -> None:
    """Write the bill of materials of the environment that has the wheel."""
    tool = environment("dist") / "cyclonedx-py"
    project = ("--pyproject", ROOT / "pyproject.toml")
    python = scratch / "installed" / "bin" / "python"
    run(tool, "environment", python, *project, "--output-file", target)


def run(*command: object, cwd: Path = ROOT, **variables: str) -> None:
    """Run a command without the variables of this environment's Python."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    words = list(map(str, command))
    print("$", *(Path(words[0]).name, *words[1:]), flush=True)
    subprocess.run(words, check=True, cwd=cwd, env=kept | variables)


def main() -> None:
    """Do all of it."""
    shutil.rmtree(DIST, ignore_errors=True)
    packages = build_packages(DIST / "packages")
    (wheel,) = (path for path in packages if path.suffix == ".whl")
    with tempfile.TemporaryDirectory() as scratch:
        seconds = try_wheel(wheel, Path(scratch))
        write_bill(Path(scratch), DIST / "bom.json")
    print(f"demo from the wheel, kernels compiled on the way: {seconds:.0f} s")


if __name__ == "__main__":
    main()
