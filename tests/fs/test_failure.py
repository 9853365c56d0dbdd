"""Each errno maps to an error with a hint, and errors survive the way through Spark."""

import errno
import pickle

import pytest

from streamlog.errors import (
    DiskFullError,
    FileExistsAlreadyError,
    FileMissingError,
    PoisonedError,
    StorageError,
    UnavailableError,
)
from streamlog.fs.failure import poisoned_failure, storage_failure


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOENT, FileMissingError),
        (errno.EEXIST, FileExistsAlreadyError),
        (errno.ENOSPC, DiskFullError),
        (errno.EDQUOT, DiskFullError),
        (errno.EFBIG, DiskFullError),
        (errno.EIO, StorageError),
        (errno.EACCES, StorageError),
        (errno.ESTALE, StorageError),
    ],
)
def test_an_errno_maps_to_its_error_class(number: int, kind: type[StorageError]) -> None:
    error = storage_failure(number, "write", "/logs/a-0/0.log")
    assert type(error) is kind
    assert isinstance(error, UnavailableError)
    assert (error.errno, error.operation, error.path) == (number, "write", "/logs/a-0/0.log")


def test_the_text_has_operation_path_and_cause_and_the_hint_a_command() -> None:
    error = storage_failure(errno.ENOSPC, "write", "/logs/a-0/0.log")
    assert error.sentence == "cannot write: no space left on device in /logs/a-0/0.log"
    assert error.hint == "free some space: df -h /logs/a-0/0.log"
    error = storage_failure(errno.EXDEV, "rename", "/a", target="/b")
    assert error.sentence == (
        "cannot rename to /b: the two names are on different file systems in /a"
    )


def test_errors_survive_pickling() -> None:
    for error in (storage_failure(errno.EIO, "sync", "/a"), poisoned_failure("write", "/a")):
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is type(error)
        assert str(copy) == str(error)
        assert (copy.errno, copy.operation, copy.hint) == (error.errno, error.operation, error.hint)
    assert isinstance(poisoned_failure("write", "/a"), PoisonedError)
