"""Leftovers of a killed process are removed by the next one; directories in use stay."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.programs.reliability import scratch
from tests.support.child import child_that_stays, run_in_child


@pytest.fixture(autouse=True)
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use a directory in place of `/dev/shm`."""
    monkeypatch.setattr(scratch, "MEMORY", tmp_path)
    return tmp_path


def make() -> object:
    made = scratch.place()
    made.__enter__()
    return made  # dropping the generator would clean up


def end(child: int) -> None:
    """Kill a child without reaping it."""
    os.kill(child, signal.SIGKILL)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)


def test_a_place_is_removed_on_exit(memory: Path) -> None:
    with scratch.place() as place:
        (place / "image").write_bytes(b"x")
        assert [*memory.iterdir()] == [place]
    assert [*memory.iterdir()] == []


def test_places_in_use_stay(memory: Path) -> None:
    with child_that_stays(make), scratch.place() as mine:
        assert len([*memory.iterdir()]) == 2
        assert scratch.remove_dead() == []
        assert len([*memory.iterdir()]) == 2
        assert run_in_child(scratch.remove_dead) == "[]"
        assert mine.exists()


def test_leftovers_of_a_killed_process_are_removed_by_the_next_place(memory: Path) -> None:
    with child_that_stays(make) as child:
        (dead,) = memory.iterdir()
        (dead / "image").write_bytes(b"x")
        end(child)
        with scratch.place() as place:
            assert [*memory.iterdir()] == [place]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_mounts_of_a_killed_process_are_unmounted(memory: Path) -> None:
    with child_that_stays(make) as child:
        (dead,) = memory.iterdir()
        for below in ("disk", "disk/mounted"):
            (dead / below).mkdir()
            subprocess.run(["mount", "-t", "tmpfs", "none", str(dead / below)], check=True)
        end(child)
        assert scratch.remove_dead() == [dead]
    assert [*memory.iterdir()] == []
    assert str(dead) not in Path("/proc/self/mountinfo").read_text()


def test_a_fork_dies_with_its_parent() -> None:
    reader, writer = os.pipe()

    def fork() -> None:
        parent = os.getpid()
        if os.fork() == 0:
            scratch.die_with(parent)
            os.write(writer, b"x")
            signal.pause()
        os.read(reader, 1)  # the fork is ready

    with child_that_stays(fork) as child:
        os.close(writer)
        end(child)
        assert os.read(reader, 1) == b""  # EOF: no process holds the write end
    os.close(reader)


def test_a_fork_whose_parent_is_already_dead_ends_at_once() -> None:
    gone = 0  # as if the parent had died before the call
    child = os.fork()
    if child == 0:
        scratch.die_with(gone)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
