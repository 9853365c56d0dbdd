"""Other projects' suites and what they need: fetched once into `.cache/wire`, verified."""

import contextlib
import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.programs.wire.suites import CACHE

_TIMEOUT_S: Final = 120


class Sdist(NamedTuple):
    """A source distribution of a Python package, from the index that pip uses.

    Args:
        name: The package's name.
        version: Its version.
        sha256: The archive's hash.
        links: A directory in which pip looks, too; None: only the index.
    """

    name: str
    version: str
    sha256: str
    links: Path | None = None

    def fetch(self) -> Path:
        """Return the directory of its files.

        Raises:
            OSError: It can neither be fetched nor found in the cache, or is not what was pinned.
        """
        folder = CACHE / f"sdist-{self.name}-{self.sha256[:16]}"
        if not folder.exists():
            with tempfile.TemporaryDirectory() as scratch, _filled(folder) as content:
                sdist = self._download(Path(scratch))
                with tarfile.open(sdist) as archive:
                    archive.extractall(content, filter="data")
        (top,) = folder.iterdir()
        return top

    def _download(self, folder: Path) -> Path:
        requirements, target = folder / "requirements.txt", folder / "found"
        pin = f"{self.name}=={self.version} --hash=sha256:{self.sha256}\n"
        requirements.write_text(pin, "utf-8")
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "download"]
        only = ["--no-deps", "--no-build-isolation", "--no-binary=:all:", "--require-hashes"]
        links = [f"--find-links={self.links}", "--no-index"] if self.links else []
        where = [*links, f"--requirement={requirements}", f"--dest={target}"]
        _run([*pip, *only, *where], f"{self.name} {self.version}")
        (found,) = target.iterdir()
        return found


class Commit(NamedTuple):
    """A commit of a git repository; its hash verifies the files.

    Args:
        repository: The repository's address.
        commit: The commit's hash.
        variable: An environment variable that can name a mirror of the repository.
    """

    repository: str
    commit: str
    variable: str

    def fetch(self) -> Path:
        """Return a directory with the commit's files.

        Raises:
            OSError: It can neither be fetched nor found in the cache.
        """
        folder = CACHE / f"commit-{self.commit[:16]}"
        if not folder.exists():
            with _filled(folder) as checkout:
                repository = os.environ.get(self.variable, self.repository)
                _git(checkout, "init", "--quiet")
                _git(checkout, "fetch", "--quiet", "--depth=1", repository, self.commit)
                _git(checkout, "checkout", "--quiet", "FETCH_HEAD")
        return folder


def plugins(requirements: Path) -> Path:
    """Return a directory with the packages of a requirements file, which has their hashes.

    Raises:
        OSError: They can neither be fetched nor found in the cache.
    """
    digest = hashlib.sha256(requirements.read_bytes()).hexdigest()
    folder = CACHE / f"{requirements.stem}-{digest[:16]}"
    if not folder.exists():
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
        only = ["--no-deps", "--only-binary=:all:", "--require-hashes"]
        with _filled(folder) as target:
            where = [f"--target={target}", f"--requirement={requirements}"]
            _run([*pip, *only, *where], requirements.name)
    return folder


def _git(folder: Path, *arguments: str) -> None:
    _run(["git", "-C", str(folder), *arguments], f"git {' '.join(arguments)}")


def _run(command: Sequence[str], what: str) -> None:
    try:
        done = subprocess.run(
            command,
            env=os.environ | {"GIT_TERMINAL_PROMPT": "0"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise TimeoutError(f"{what}: took more than {_TIMEOUT_S} s") from error
    if done.returncode:
        raise OSError(f"{what}: {done.stdout.strip()}")


@contextlib.contextmanager
def _filled(folder: Path) -> Iterator[Path]:
    """Yield a new directory that takes the place of `folder` once it is complete."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        content = Path(scratch, "content")
        content.mkdir()
        yield content
        with contextlib.suppress(FileExistsError, IsADirectoryError):
            content.rename(folder)
