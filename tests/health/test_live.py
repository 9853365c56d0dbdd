"""`verify` on a sound root beside everybody who writes there: no false alarm.

    python -m tests.health.test_live --seconds 60

Processes append, roll, commit, retire, delete, compact, and make and delete topics, each as fast
as it can, while the root is verified again and again, deep and not.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from streamlog.commits.identity import CommitIdentity
from streamlog.commits.staging import Stager
from streamlog.errors import StreamLogError
from streamlog.fs.local import LocalFileSystem
from streamlog.fs.log_root import LogRoot
from streamlog.health.findings import Finding, FindingKind, Severity
from streamlog.health.verify import verify
from streamlog.maintenance.runner import Maintenance
from streamlog.records.record import Record
from streamlog.root.manager import LogManager
from streamlog.topic import TopicPartition
from tests.support.commits import batches_of

FS = LocalFileSystem()
SMALL = {"internal.segment.bytes": "6000", "file.delete.delay.ms": "0"}


def make(root: str) -> None:
    with LogManager.open(root, create=True) as manager:
        manager.create_topic("plain", 1, {**SMALL, "retention.bytes": "40000"})
        manager.create_topic("t", 2, SMALL)
        compacted = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
        manager.create_topic("state", 1, {**SMALL, **compacted})


def append(root: str) -> None:
    with LogManager.open(root) as manager:
        for number in range(1 << 40):
            records = [Record(b"%d" % (number % 7), bytes(300), (), 1_700_000_000_000 + number)]
            manager.log("plain", 0).append(records)
            manager.log("state", 0).append(records)


def commit(root: str) -> None:
    app = f"app-{os.getpid()}"
    with LogManager.open(root) as manager:
        for version in range(1 << 40):
            with Stager(LogRoot.at(root, fs=FS), app, version, 0, random=random.Random()) as stager:
                for partition in (0, 1):
                    stager.append(TopicPartition("t", partition), batches_of([bytes(400)] * 3))
                staged = stager.finish(rows=6, checksum=version)
            manager.commits.commit(CommitIdentity(app, version), [staged])
            if version % 5 == 4:
                manager.commits.retire()


def maintain(root: str) -> None:
    with Maintenance(root) as maintenance:
        while True:
            maintenance.run()


def come_and_go(root: str) -> None:
    for number in range(1 << 40):
        with LogManager.open(root) as manager:
            name = f"topic-{number % 3}"
            manager.create_topic(name, 2, if_not_exists=True)
            manager.log(name, 1).append([Record(None, b"x")])
            manager.delete_topic(name)


WORKERS: tuple[Callable[[str], None], ...] = (append, commit, maintain, come_and_go)


@contextmanager
def at_work(root: str) -> Iterator[list[int]]:
    """Keep all workers going, each in a process of its own, until the block ends."""
    children = []
    for work in WORKERS:
        child = os.fork()
        if child == 0:
            try:
                work(root)
            except BaseException:  # noqa: BLE001 - printed, for the parent fails then
                traceback.print_exc()
            finally:
                os._exit(1)
        children.append(child)
    try:
        yield children
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def run(root: str, seconds: float) -> tuple[int, int, list[Finding]]:
    """Verify a root beside its writers.

    Returns:
        How often it was looked at, in how many runs something was seen in progress, and what
        was reported as wrong.
    """
    make(root)
    wrong: list[Finding] = []
    runs = busy = 0
    with at_work(root) as children:
        time.sleep(0.3)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found: list[Finding] = []
            verify(FS, root, found.append, is_deep=runs % 2 == 1)
            wrong += [each for each in found if each.severity is not Severity.NOTE]
            busy += any(each.kind is FindingKind.IN_PROGRESS for each in found)
            runs += 1
        for child in children:
            assert os.waitpid(child, os.WNOHANG) == (0, 0), "a writer ended by itself"
    return runs, busy, wrong


def test_a_sound_root_is_sound_beside_its_writers(tmp_path: Path) -> None:
    runs, _, wrong = run(str(tmp_path / "root"), 4)
    assert wrong == []
    assert runs > 3


def test_damage_is_found_beside_writers(tmp_path: Path) -> None:
    root = str(tmp_path / "root")
    make(root)
    with LogManager.open(root) as manager:
        manager.create_topic("damaged", 1)
        manager.log("damaged", 0).append([Record(None, bytes(1000)) for _ in range(3)])
    path = Path(root) / "damaged-0" / f"{0:020}.log"
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    with at_work(root):
        time.sleep(0.3)
        found: list[Finding] = []
        verify(FS, root, found.append)
    wrong = [each for each in found if each.severity is Severity.DAMAGE]
    # The high watermark reaches behind the damage: that row of the checkpoint is told, too.
    assert str(path) in {each.path for each in wrong}
    assert all("damaged" in f"{each.path} {each.what}" for each in wrong)


def test_what_a_killed_compaction_left_is_found(tmp_path: Path) -> None:
    root = str(tmp_path / "root")
    make(root)
    (Path(root) / "state-0" / f"{0:020}.log.cleaned").write_bytes(b"x")
    found: list[Finding] = []
    verify(FS, root, found.append)
    assert [(each.kind, each.severity) for each in found] == [
        (FindingKind.LEFTOVER, Severity.REPAIRABLE)
    ]
    lock = FS.try_lock(f"{root}/.streamlog/locks/state-0.maintenance", shared=False)
    assert lock is not None
    lock.release()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as directory:
        try:
            runs, busy, wrong = run(f"{directory}/root", seconds)
        except StreamLogError as error:
            sys.exit(f"verify failed: {error}")
    for each in wrong:
        print(each)
    print(f"{runs} runs, {busy} saw something in progress, {len(wrong)} false alarms")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
