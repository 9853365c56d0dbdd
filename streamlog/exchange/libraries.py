"""The libraries of the extra `lakehouse`, imported where they are needed, and what they say."""

import os
import re
from importlib import import_module
from typing import Any, Final

from streamlog.errors import InvalidRequestError
from streamlog.store.urls import absolute, check_no_secret, is_store_url

__all__ = ["hint_for", "library_detail", "load_library", "path_of_table"]

_DETAIL_LENGTH: Final = 500  # delta-rs names the request first, which is long
_DECORATION: Final = re.compile(r"(?:\x1b\[[0-9;]*m|[\s↳│╰─▶])+")  # errors are drawn as trees
_DENIED: Final = re.compile(r"\b40[13]\b|ACCESS_DENIED|denied|credential", re.IGNORECASE)
_BACKTRACE: Final = re.compile(r"\s0: <unknown>.*", re.DOTALL)
_USER_IN_URL: Final = re.compile(r"://[^/\s@'\"]*@")
_SECRET_NAME: Final = re.compile(r"SECRET|TOKEN|PASSWORD|CREDENTIAL|(ACCESS|ACCOUNT|API)_?KEY")
_SECRET_LENGTH: Final = 8  # a shorter value of such a variable may be any word


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


def library_detail(error: BaseException) -> str:
    """Return in one line what a library says, without credentials.

    Those in URLs are left out, and values of environment variables that are named as secrets are.
    """
    text = _BACKTRACE.sub("", str(error))
    for name, value in os.environ.items():
        if len(value) >= _SECRET_LENGTH and _SECRET_NAME.search(name.upper()):
            text = text.replace(value, "…")
    text = _USER_IN_URL.sub("://…@", text)
    return _DECORATION.sub(" ", text).strip()[:_DETAIL_LENGTH]


def hint_for(detail: str) -> str | None:
    """Return what to do about an error of a library, if that can be told."""
    if _DENIED.search(detail):
        return "check the credentials in the environment, and what they allow"
    return None


def path_of_table(target: str) -> str:
    """Return the path or URL of a Delta table as delta-rs takes it.

    Raises:
        InvalidOptionError: It is a URL with credentials.
    """
    if is_store_url(target):
        check_no_secret(target)
    return absolute(target)
