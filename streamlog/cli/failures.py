"""What the command says and returns when something is wrong: two lines, and an exit code.

Error: what, where, got, expected
Try: what to do or to type next

0  fine, an empty result too
1  a finding: damage, or a thing that could not be done now
2  wrong use or bad input, an unknown topic too
130  interrupted by Ctrl-C
"""

from typing import Final, NamedTuple

from streamlog.cli.output import safe_text
from streamlog.errors import (
    CorruptDataError,
    DiskFullError,
    FencedError,
    FileMissingError,
    InvalidRequestError,
    LockTimeoutError,
    StreamLogError,
    UnknownTopicError,
)

__all__ = ["EXIT_FINDING", "EXIT_INTERRUPTED", "EXIT_USAGE", "Failure", "Findings", "explain"]

EXIT_FINDING: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130

_CURES: Final[tuple[tuple[type[StreamLogError], str], ...]] = (
    (UnknownTopicError, "streamlog topics list"),
    (FileMissingError, "check the path; a new root is made by: streamlog topics create NAME"),
    (InvalidRequestError, "{verb} --help"),
    (CorruptDataError, "restore the file from a copy; the records before it can be read"),
    (FencedError, "look at what stands now and decide again"),
    (LockTimeoutError, "again, when the other writer is done"),
    (DiskFullError, "make room, then do it again"),
    (StreamLogError, "streamlog doctor"),
)


class Failure(NamedTuple):
    """One thing that went wrong, ready to be told."""

    error: str
    cure: str
    exit_code: int

    def __str__(self) -> str:
        return f"Error: {safe_text(self.error)}\nTry: {safe_text(self.cure)}"


def explain(error: StreamLogError, verb: str = "streamlog") -> Failure:
    """Return what to tell about `error`, which `verb` met."""
    general = next(text for kind, text in _CURES if isinstance(error, kind))
    cure = error.hint or general.format(verb=verb)
    is_usage = isinstance(error, InvalidRequestError | FileMissingError)
    return Failure(error.sentence, cure, EXIT_USAGE if is_usage else EXIT_FINDING)


class Findings(Exception):  # noqa: N818 - not an error of its own: it carries those met
    """Errors that did not keep the rest from being done; raised when that is finished."""

    def __init__(self, errors: list[StreamLogError]) -> None:
        super().__init__(f"{len(errors)} findings")
        self.errors = errors
