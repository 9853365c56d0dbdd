"""Seeds a bug into a module during import: edits a copy of its source, never the file."""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import CodeType, ModuleType
from typing import NamedTuple


class Edit(NamedTuple):
    """One change of a module's source; `old` must occur in it exactly once."""

    module: str
    old: str
    new: str


class StaleBugError(Exception):
    """The text that a bug replaces has changed, so the bug must be adapted."""


def install(edits: Sequence[Edit]) -> None:
    """Apply edits to modules that are imported from now on.

    Raises:
        StaleBugError: A text does not occur exactly once, or a module is already imported.
    """
    for module in {edit.module for edit in edits}:
        if module in sys.modules:
            raise StaleBugError(f"{module} is already imported")
        edited_source(module, edits)
    sys.meta_path.insert(0, _Finder(edits))


def edited_source(module: str, edits: Sequence[Edit]) -> str:
    """Return the source of a module with its edits applied.

    Raises:
        StaleBugError: A text does not occur exactly once.
    """
    with open(_origin(module), encoding="utf-8") as file:
        source = file.read()
    for edit in edits:
        if edit.module == module:
            if source.count(edit.old) != 1:
                times = source.count(edit.old)
                raise StaleBugError(f"{module}: found {times} times, not once:\n{edit.old}")
            source = source.replace(edit.old, edit.new)
    return source


def _origin(module: str) -> str:
    # The parent packages hold no code, so importing them changes nothing.
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise StaleBugError(f"there is no module {module}")
    return spec.origin


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, edits: Sequence[Edit]) -> None:
        self._edits = edits

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in {edit.module for edit in self._edits}:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.origin is None:
            return None
        spec.loader = _Loader(name, spec.origin, self._edits)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, edits: Sequence[Edit]) -> None:
        super().__init__(name, path)
        self._edits = edits

    def get_code(self, fullname: str) -> CodeType:
        """Compile the edited source without reading or writing a bytecode cache."""
        source = edited_source(fullname, self._edits)
        return compile(source, self.path, "exec", dont_inherit=True)
