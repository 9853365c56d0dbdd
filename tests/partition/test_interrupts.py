"""Ctrl-C anywhere within a call: no lock stays held, and the log goes on as if nothing had been.

Python runs a signal's handler when a function begins, and after a call; so there the exception of
the handler can come from. Each such place within the package is tried, one after the other.
"""

import contextlib
import dis
import itertools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import CodeType, FrameType
from typing import Any

import pytest

import streamlog
from streamlog.clock import ManualClock
from streamlog.config.log_config import LogConfig
from streamlog.fs.local import LocalFileSystem
from streamlog.fs.log_root import LogRoot
from streamlog.records.record import Record
from streamlog.root.partition_log import PartitionLog
from streamlog.topic import TopicPartition
from tests.support.replicated_log import Copies, batch, make_replica, open_log

NOW = 1_700_000_000_000
PACKAGE = os.path.dirname(streamlog.__file__)
LOCKING = ("log.py", "replica.py", "session.py", "locks.py", "local.py")


class Interrupt:
    """Raises KeyboardInterrupt at one of the places where a signal's handler could.

    Args:
        at: Which of them, from 1.
        files: The names of the files whose places count.
    """

    def __init__(self, at: int, files: tuple[str, ...] = LOCKING) -> None:
        self.has_struck = False
        self.where = ""
        self._left = at
        self._files = files
        self._after_call: dict[CodeType, frozenset[int]] = {}
        self._before: object = None

    def __enter__(self) -> "Interrupt":
        self._before = sys.gettrace()
        sys.settrace(self._on_call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)  # type: ignore[arg-type]

    def _on_call(self, frame: FrameType, event: str, _: Any) -> Any:
        folder, name = os.path.split(frame.f_code.co_filename)
        if name not in self._files or not folder.startswith(PACKAGE):
            return None
        self._pass(frame)
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return self._on_opcode

    def _on_opcode(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "opcode" and frame.f_lasti in self._places(frame.f_code):
            self._pass(frame)
        return self._on_opcode

    def _places(self, code: CodeType) -> frozenset[int]:
        found = self._after_call.get(code)
        if found is None:
            instructions = list(dis.get_instructions(code))
            found = self._after_call[code] = frozenset(
                after.offset
                for call, after in itertools.pairwise(instructions)
                if call.opname.startswith("CALL")
            )
        return found

    def _pass(self, frame: FrameType) -> None:
        self._left -= 1
        if self._left == 0:
            self.has_struck = True
            code = frame.f_code
            self.where = f"{os.path.basename(code.co_filename)}:{frame.f_lineno} {code.co_name}"
            raise KeyboardInterrupt


def record(number: int) -> Record:
    return Record(b"%d" % number, b"v", (), NOW)


def opened(path: Path, **config: int) -> PartitionLog:
    return PartitionLog.open(
        path, config=LogConfig(**config), clock=ManualClock(NOW), random=Random(1)
    )


def append(log: PartitionLog) -> None:
    log.append([record(1)])


def nested(log: PartitionLog) -> None:
    with log.writing():
        log.append([record(1)])
        log.flush()


def is_locked(root: Path) -> bool:
    path = LogRoot.at(str(root)).partition_lock(TopicPartition("orders", 0))
    lock = LocalFileSystem().try_lock(path, shared=False)
    if lock is not None:
        lock.release()
    return lock is None


@pytest.mark.parametrize("call", [append, nested, PartitionLog.roll, PartitionLog.catch_up])
def test_an_interrupted_call_leaves_no_lock_held_and_a_handle_that_goes_on(
    call: Callable[[PartitionLog], object], tmp_path: Path
) -> None:
    number = 0
    is_over = False
    while not is_over:
        root = tmp_path / str(number)  # a new one now and then: rolls make a log slow to look at
        with opened(root / "orders-0") as log, opened(root / "orders-0") as other:
            for _ in range(40):
                number += 1
                is_over = not interrupted(number, call, log, other)
                if is_over:
                    break
    assert number > 50


def interrupted(
    number: int,
    call: Callable[[PartitionLog], object],
    log: PartitionLog,
    other: PartitionLog,
) -> bool:
    """Interrupt a call at one place and look at what it leaves; False: there is no such place."""
    log.append([record(0)])
    before = log.log_end_offset
    kept = None
    with Interrupt(number) as interrupt:
        try:
            call(log)
        except KeyboardInterrupt as error:
            kept = error  # with all its frames, as a shell keeps them
    if call is nested:
        kept = None  # the user's own `with` lets go with its frames at the latest
    where = number, interrupt.where
    assert not is_locked(Path(log.root)), where
    assert other.append([record(2)]).base_offset >= before - 1, where
    assert log.append([record(3)]).base_offset == other.log_end_offset, where
    keys = [each.key for each in log.read(min(before, other.log_end_offset - 1)).records()]
    assert keys[-2:] == [b"2", b"3"] and len(keys) <= 3, (where, keys)
    del kept
    return interrupt.has_struck


def follow(log: PartitionLog) -> None:
    with log.locked():
        log.append_as_follower(batch(log.log_end_offset))
        log.raise_high_watermark(log.log_end_offset)


@pytest.mark.parametrize("call", [append, follow])
def test_an_interrupted_replica_commits_what_it_did_or_nothing(
    call: Callable[[PartitionLog], object], tmp_path: Path
) -> None:
    path, fs = str(tmp_path / "orders-0"), LocalFileSystem()
    make_replica(fs, path)
    with open_log(fs, Copies(), path=path) as log, open_log(fs, path=path) as other:
        for number in range(1, 5_000):
            call(log)
            before = log.log_end_offset
            kept = None
            with Interrupt(number) as interrupt:
                try:
                    call(log)
                except KeyboardInterrupt as error:
                    kept = error
            where = number, interrupt.where
            if call is follow:
                kept = None  # its own `with` lets go with its frames at the latest
            assert not is_locked(tmp_path), where
            other.catch_up()
            assert before <= other.high_watermark <= other.log_end_offset <= before + 1, where
            follow(other)
            log.catch_up()
            assert log.high_watermark == log.log_end_offset == other.log_end_offset, where
            del kept
            if not interrupt.has_struck:
                break
    assert number > 50


def test_an_interrupted_opening_or_closing_leaves_no_lock_held(tmp_path: Path) -> None:
    path = tmp_path / "orders-0"
    opened(path).close()
    for number in range(1, 20_000, 13):  # each opening syncs, all places would take a minute
        log = None
        with Interrupt(number) as interrupt, contextlib.suppress(KeyboardInterrupt):
            log = opened(path)
            log.append([record(number)])
            log.close()
        assert not is_locked(tmp_path), number
        if log is not None:
            log.close()
        if not interrupt.has_struck:
            break
    assert number > 100
