"""Notices of the kernel: what they tell, what they leave out, and directories that are replaced."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamlog.fs.notices import DirectoryNotices


@pytest.fixture
def notices() -> Iterator[DirectoryNotices]:
    opened = DirectoryNotices.open()
    assert opened is not None
    yield opened
    opened.close()


def added(notices: DirectoryNotices, path: Path) -> str:
    path.mkdir()
    assert notices.add(str(path))
    return str(path)


def test_a_write_a_new_file_and_a_rename_are_noticed_once(
    notices: DirectoryNotices, tmp_path: Path
) -> None:
    one, two = added(notices, tmp_path / "one"), added(notices, tmp_path / "two")
    assert notices.take() == frozenset()
    with (tmp_path / "one/log").open("wb", buffering=0) as log:
        assert notices.take() == {one}
        for _ in range(1000):
            log.write(b"x")
        assert notices.take() == {one}
        assert notices.take() == frozenset()
        os.rename(tmp_path / "one/log", tmp_path / "two/log")
        assert notices.take() == {two}
        log.write(b"y")
        assert notices.take() == {two}
    notices.discard(two)
    (tmp_path / "two/log").write_bytes(b"z")
    assert notices.take() == frozenset()


def test_a_directory_that_was_moved_away_is_noticed_and_forgotten(
    notices: DirectoryNotices, tmp_path: Path
) -> None:
    name = added(notices, tmp_path / "topic-0")
    (tmp_path / "topic-0").rename(tmp_path / "topic-0.deleted")
    assert notices.take() == {name}
    assert name not in notices
    (tmp_path / "topic-0.deleted/log").touch()
    assert notices.take() == frozenset()


def test_adding_again_finds_the_directory_that_took_the_place(
    notices: DirectoryNotices, tmp_path: Path
) -> None:
    name = added(notices, tmp_path / "topic-0")
    (tmp_path / "other").mkdir()
    os.rename(tmp_path / "other", tmp_path / "topic-0")  # over the empty directory
    assert notices.add(name)
    notices.take()
    (tmp_path / "topic-0/log").touch()
    assert notices.take() == {name}


def test_what_cannot_be_noticed_is_refused(notices: DirectoryNotices, tmp_path: Path) -> None:
    assert not notices.add(str(tmp_path / "none"))
    assert not notices.add("/proc/self")  # of a kind that is not known to be local


def test_too_many_notices_mean_that_anything_may_have_changed(
    notices: DirectoryNotices, tmp_path: Path
) -> None:
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    one = added(notices, tmp_path / "one")
    with (tmp_path / "one/a").open("wb", 0) as first, (tmp_path / "one/b").open("wb", 0) as second:
        for _ in range(most // 2 + 1):  # in turn, or the kernel makes one notice of them
            first.write(b"x")
            second.write(b"x")
    assert notices.take() is None
    assert notices.take() in (frozenset(), {one})
