"""Which frames pytest leaves out of a traceback: those of a helper whose error says it all."""

from typing import TYPE_CHECKING

from streamlog.errors import StreamLogError

if TYPE_CHECKING:
    import pytest

__all__ = ["hides_helper"]


def hides_helper(error: "pytest.ExceptionInfo[BaseException]") -> bool:
    """Tell whether a traceback is to end in the test that called a helper.

    A module of helpers has this as its `__tracebackhide__`. What fails in a helper without an
    error of its own is a defect, and is shown with all its frames.

    Args:
        error: What pytest has caught.
    """
    return error.errisinstance((AssertionError, StreamLogError))
