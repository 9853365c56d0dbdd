"""Regular expressions of clients, matched by RE2: in linear time, whatever they are.

A broker matches them with RE2/J. RE2 speaks the same language; Python's `re` does not, and a
client could keep it busy for years.
"""

import importlib
from collections.abc import Iterable
from typing import Any, Final

__all__ = ["InvalidPatternError", "matching"]

_MEMORY_BYTES: Final = 8 << 20  # of a compiled pattern; RE2 refuses larger ones


class InvalidPatternError(Exception):
    """A text is no regular expression, or none can be matched here; the message says why."""


def matching(pattern: str, names: Iterable[str] = ()) -> frozenset[str]:
    """Return the names that a pattern matches as a whole.

    Raises:
        InvalidPatternError: The pattern is invalid, or RE2 is not installed.
    """
    re2 = _library()
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY_BYTES
    try:
        compiled = re2.compile(pattern, options=options)
    except UnicodeEncodeError:
        raise InvalidPatternError("it is not Unicode") from None
    except re2.error as error:
        reason = error.args[0] if error.args else b""
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise InvalidPatternError(text) from None
    return frozenset(each for each in names if compiled.fullmatch(each) is not None)


def _library() -> Any:
    try:
        return importlib.import_module("re2")
    except ImportError:
        raise InvalidPatternError(
            "patterns need RE2, which the server does not have: "
            "pip install 'pyspark-streamlog[gateway]'"
        ) from None
