"""Other projects' suites: fetched once into `.cache/wire`, verified, never committed."""

import contextlib
import hashlib
import io
import os
import subprocess
import tarfile
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tests.programs.wire.suites import CACHE

_TIMEOUT_S: Final = 120


class Archive(NamedTuple):
    """A tar archive with one directory at its top, such as a source distribution."""

    url: str
    sha256: str

    def fetch(self) -> Path:
        """Return the directory.

        Raises:
            OSError: It can neither be fetched nor found in the cache.
            ValueError: It is not what was pinned.
        """
        folder = CACHE / f"archive-{self.sha256[:16]}"
        if not folder.exists():
            with urllib.request.urlopen(self.url, timeout=_TIMEOUT_S) as response:
                data = response.read()
            found = hashlib.sha256(data).hexdigest()
            if found != self.sha256:
                raise ValueError(f"{self.url}: sha256 {found}, expected {self.sha256}")
            with _filled(folder) as unpacked, tarfile.open(fileobj=io.BytesIO(data)) as archive:
                archive.extractall(unpacked, filter="data")
        (top,) = folder.iterdir()
        return top


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


def _git(folder: Path, *arguments: str) -> None:
    environment = os.environ | {"GIT_TERMINAL_PROMPT": "0"}
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments],
        env=environment,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        timeout=_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise OSError(f"git {' '.join(arguments)}: {done.stderr.strip()}")


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
