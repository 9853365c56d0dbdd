"""The files of the repository, which the tests in this package check."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGE: Final = ROOT / "streamlog"

_NOT_OURS: Final = {".git", ".venv", ".cache", "__pycache__", "golden", "build", "dist"}
_TEXT: Final = {".py", ".md", ".toml", ".txt", ".properties", ".conf", ".sh", ".java", ".cfg"}


def files(*suffixes: str) -> Iterator[Path]:
    """Yield the text files of the repository, except golden data, optionally by suffix."""
    for path in sorted(ROOT.rglob("*")):
        relative = path.relative_to(ROOT)
        if path.is_file() and not _is_left_out(relative):
            is_script = not path.suffix and relative.parts[0] in (".ci", "Makefile")
            if path.suffix in (suffixes or _TEXT) or (is_script and not suffixes):
                yield path


def _is_left_out(relative: Path) -> bool:
    return any(
        part in _NOT_OURS or (part.startswith(".") and part.endswith("_cache"))
        for part in relative.parts
    )


def modules() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if "__pycache__" not in path.parts)


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def name(path: Path) -> str:
    """Return a path relative to the root of the repository."""
    return path.relative_to(ROOT).as_posix()
