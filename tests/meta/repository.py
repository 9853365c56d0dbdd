"""The files of the repository, which the tests in this package check."""

import ast
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGE: Final = ROOT / "streamlog"

_NOT_OURS: Final = {".git", ".venv", ".cache", "__pycache__", "golden", "build", "dist"}
_TEXT: Final = {".py", ".md", ".toml", ".txt", ".properties", ".conf", ".sh", ".java", ".cfg"}


def files(*suffixes: str) -> Iterator[Path]:
    """Yield the text files of the repository, except golden data, optionally by suffix."""
    for path in _all_files():
        is_script = not path.suffix and path.relative_to(ROOT).parts[0] in (".ci", "Makefile")
        if path.suffix in (suffixes or _TEXT) or (is_script and not suffixes):
            yield path


@cache
def _all_files() -> tuple[Path, ...]:
    found: list[Path] = []
    for top, directories, names in os.walk(ROOT):
        # Not entered at all: there are a hundred times as many files as in the repository.
        directories[:] = [each for each in directories if not _is_left_out(each)]
        found += (Path(top, each) for each in names if not _is_left_out(each))
    return tuple(sorted(path for path in found if path.is_file()))


def _is_left_out(part: str) -> bool:
    return part in _NOT_OURS or (part.startswith(".") and part.endswith("_cache"))


def modules() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if "__pycache__" not in path.parts)


@cache
def parse(path: Path) -> ast.Module:
    """Return a module's syntax tree, shared by all who ask: nobody may change it."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def name(path: Path) -> str:
    """Return a path relative to the root of the repository."""
    return path.relative_to(ROOT).as_posix()
