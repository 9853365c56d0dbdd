"""Hides the frames of test helpers from tracebacks of pytest if the error is self-explanatory."""

from typing import TYPE_CHECKING

from streamlog.errors import StreamLogError

if TYPE_CHECKING:
    import pytest

__all__ = ["hides_helper"]


def hides_helper(error: "pytest.ExceptionInfo[BaseException]") -> bool:
    """Return whether a traceback should end in the test that called a helper.

    Modules of helpers use this as their `__tracebackhide__`. Any other error in a helper is a bug
    and is shown with all frames.
    """
    return error.errisinstance((AssertionError, StreamLogError))
