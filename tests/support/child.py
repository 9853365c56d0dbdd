"""Runs functions in forked children, for behaviour that only another process can show."""

import os
import signal
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def run_in_child(function: Callable[[], object]) -> str:
    """Return `repr` of the result of `function` in a forked child, or its traceback."""
    reader, writer = os.pipe()
    child = _fork()
    if child == 0:
        try:
            answer = repr(function())
        except BaseException:  # noqa: BLE001  # the parent is to see it
            answer = traceback.format_exc()
        os.write(writer, answer.encode())
        os._exit(0)
    os.close(writer)
    try:
        answer = b"".join(iter(lambda: os.read(reader, 65536), b"")).decode()
    finally:
        os.close(reader)
        os.waitpid(child, 0)
    return answer


@contextmanager
def child_that_stays(prepare: Callable[[], object]) -> Iterator[int]:
    """Fork a child that runs `prepare` and then waits; yield its pid when it is ready.

    The child is killed with SIGKILL on exit, unless the caller has killed it before.
    """
    reader, writer = os.pipe()
    child = _fork()
    if child == 0:
        try:
            keep = prepare()
            os.write(writer, b"ready")
            signal.pause()
            del keep
        finally:
            os._exit(1)
    os.close(writer)
    try:
        if os.read(reader, 5) != b"ready":
            raise RuntimeError("the child died in `prepare`")
        yield child
    finally:
        os.close(reader)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _fork() -> int:
    with warnings.catch_warnings():
        # Test runners have threads; the child must not wait for locks that they held at the fork.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()
