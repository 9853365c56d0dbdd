"""The libraries of the extra `lakehouse`, imported where they are needed."""

from importlib import import_module
from typing import Any

from streamlog.errors import InvalidRequestError

__all__ = ["load_library"]


def load_library(name: str, purpose: str) -> Any:
    """Return a module of an optional library.

    Args:
        name: The module.
        purpose: What needs it, for the error: `Delta tables`.

    Raises:
        InvalidRequestError: It is not installed.
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise InvalidRequestError(
            f"{purpose} need a library that is not installed",
            got=f"no module {error.name or name}",
            hint='install the extra: pip install "pyspark-streamlog[lakehouse]"',
        ) from error
