"""Real faults under a writer with acks=all over three disks, and what must hold afterwards.

A case is a fault, its victim and what comes back:

    fault      killed (the writer, by SIGKILL), detached (lazy unmount), power (cut of one disk),
               refused (EIO of writes, seen by fsync), full (ENOSPC)
    victim     the leader's disk or a follower's
    return     back (the same disk), replaced (an empty one), restored (an older copy of it)

While one disk is away, the writer goes on. At the end every acknowledged batch is readable at its
offset, no refused one is, no record is there twice, and `verify --replicas` finds nothing.

`power_failure` cuts all disks at once, as a power failure of the host does, and counts the
acknowledged batches that are lost.
"""

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from tests.programs.reliability.kinds.disks import JOURNAL_FLUSHED, JOURNAL_LOST
from tests.programs.replicas.disks import ReplicaDisk, replica_disks
from tests.programs.replicas.writer import PARTITION, RECORDS, values_of
from tests.support.cli import ROOT, ok, streamlog

__all__ = [
    "CASES",
    "BrokenError",
    "Case",
    "Fault",
    "Report",
    "Return",
    "Subject",
    "Victim",
    "bring_back",
    "power_failure",
    "run",
    "strike",
]

ACKS: Final = 15  # awaited before and after each step
PATIENCE_S: Final = 60.0  # for these


class BrokenError(Exception):
    """A promise was broken."""


class Fault(Enum):
    """What happens to the victim."""

    KILLED = "killed"
    DETACHED = "detached"
    POWER = "power"
    REFUSED = "refused"
    FULL = "full"


class Victim(Enum):
    """Whose disk it is."""

    LEADER = "leader"
    FOLLOWER = "follower"

    @property
    def number(self) -> int:
        """The number of its disk: the first one is the preferred leader."""
        return 0 if self is Victim.LEADER else 1


class Return(Enum):
    """What comes back."""

    BACK = "back"
    REPLACED = "replaced"
    RESTORED = "restored"


class Case(NamedTuple):
    """One case; `str` names it."""

    fault: Fault
    victim: Victim = Victim.LEADER
    comes: Return = Return.BACK

    def __str__(self) -> str:
        return "-".join(each.value for each in self)


CASES: Final = (
    Case(Fault.KILLED),
    *(Case(fault, victim, comes)
      for fault in (Fault.DETACHED, Fault.POWER)
      for victim in Victim
      for comes in Return),
    *(Case(fault, victim) for fault in (Fault.REFUSED, Fault.FULL) for victim in Victim),
    *(Case(fault, comes=Return.REPLACED) for fault in (Fault.REFUSED, Fault.FULL)),
)  # fmt: skip


class Report(NamedTuple):
    """Batches by the outcome that the writer noted, and readable ones."""

    acked: int
    refused: int
    unknown: int
    readable: int
    outage_s: float = 0.0  # from the fault to the next acknowledged batch
    lost: int = 0  # acknowledged, not readable


# ---- the replica set ----------------------------------------------------------------------------
class Subject:
    """Three disks with a topic, and the writer.

    Attributes:
        disks: The disks; the first one leads at first.
        diary: The writer's diary.
    """

    def __init__(
        self,
        disks: list[ReplicaDisk],
        place: Path,
        configs: Mapping[str, str],
        partitions: int = 1,
    ) -> None:
        self.disks, self.diary = disks, place / "diary"
        self._errors = place / "errors"
        self._lives = 0
        self.diary.touch()
        first = disks[0].root
        for disk in disks[1:]:
            ok("replicas", "add", disk.root, "--path", first)
        given = [f"--config={key}={value}" for key, value in configs.items()]
        created = ["create", PARTITION.topic, "--partitions", partitions]
        ok("topics", *created, "--replication-factor", 3, *given, "--path", first)

    @property
    def roots(self) -> str:
        """The log roots as `--path` takes them."""
        return ",".join(disk.root for disk in self.disks)

    @contextmanager
    def writer(self) -> Iterator["subprocess.Popen[bytes]"]:
        """Run the writer; kill it at the end."""
        self._lives += 1
        module = "tests.programs.replicas.writer"
        command = [sys.executable, "-m", module, self.roots, str(self.diary), f"w{self._lives}"]
        with self._errors.open("ab") as errors:
            process = subprocess.Popen(command, cwd=ROOT, stderr=errors)
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def noted(self, word: str) -> dict[tuple[str, int], int]:
        """Return the batches of which the diary has a word, with their offsets."""
        rows = (line.split() for line in self.diary.read_text().splitlines())
        return {(row[1], int(row[2])): int(row[3]) for row in rows if row[0] == word}

    def wait(self, count: int = ACKS) -> float:
        """Wait until so many more batches are acknowledged; return the seconds to the first.

        Raises:
            BrokenError: They are not.
        """
        start, before = time.monotonic(), len(self.noted("acked"))
        first_s = 0.0
        while (now := len(self.noted("acked"))) < before + count:
            if now > before and not first_s:
                first_s = time.monotonic() - start
            if time.monotonic() - start > PATIENCE_S:
                found = f"{now - before} of {count} batches in {PATIENCE_S} s"
                raise BrokenError(f"{found}\n{self.errors()}")
            time.sleep(0.01)
        return first_s

    def errors(self) -> str:
        """Return the last errors of the writer."""
        return self._errors.read_text()[-2000:]

    # ---- afterwards ------------------------------------------------------------------------------
    def settle(self) -> None:
        """Bring all replicas up to date.

        Raises:
            BrokenError: They are not after a while.
        """
        deadline = time.monotonic() + PATIENCE_S
        while True:
            ran = streamlog("replicate", "--once", "--path", self.roots)
            status = streamlog("replicas", "status", "--path", self.roots)
            if ran.code == status.code == 0:
                return
            if time.monotonic() > deadline:
                raise BrokenError(f"still under-replicated: {status.rows}\n{ran.error}")
            time.sleep(0.1)

    def check(self, *, may_lose: bool = False) -> Report:
        """Check every promise.

        Raises:
            BrokenError: One is broken.
        """
        read = ok("cat", PARTITION.topic, "--path", self.roots, "--format", "ndjson").rows
        at = {row["offset"]: row["value"].encode() for row in read}
        twice = [value for value, count in Counter(at.values()).items() if count > 1]
        if len(at) != len(read) or twice:
            raise BrokenError(f"{len(read)} records, {len(at)} offsets, values twice: {twice[:5]}")
        acked, refused = self.noted("acked"), self.noted("refused")
        lost = [batch for batch, offset in acked.items() if not _is_at(at, batch, offset)]
        if lost and not may_lose:
            raise BrokenError(
                f"{len(lost)} of {len(acked)} acknowledged batches are lost: {lost[:5]}"
            )
        there = {*at.values()}
        wrong = [batch for batch in refused if there & {*values_of(*batch)}]
        if wrong:
            raise BrokenError(f"batches were refused and are there: {wrong[:5]}\n{self.errors()}")
        ran = streamlog("verify", *(disk.root for disk in self.disks), "--replicas")
        if ran.code != 0:
            raise BrokenError(f"verify --replicas: {ran.rows}\n{ran.error}")
        return Report(
            acked=len(acked),
            refused=len(refused),
            unknown=len(self.noted("tried")) - len(acked) - len(refused),
            readable=len(at) // RECORDS,
            lost=len(lost),
        )


def _is_at(at: dict[int, bytes], batch: tuple[str, int], offset: int) -> bool:
    return [at.get(offset + index) for index in range(RECORDS)] == values_of(*batch)


@contextmanager
def subject(configs: Mapping[str, str], *, refusing: int | None = None) -> Iterator[Subject]:
    """Yield a new replica set on three disks."""
    with replica_disks(refusing=refusing) as disks:
        configs = {"min.insync.replicas": "2", **configs}
        yield Subject(disks, disks[0].mount_point.parent, configs)


# ---- the cases ----------------------------------------------------------------------------------
def run(
    case: Case, random: Random, *, inspect: Callable[[Subject], None] = lambda set_: None
) -> Report:
    """Run a case and check every promise.

    Args:
        case: The case.
        random: For the moment of the fault.
        inspect: Called at the end, while the disks are mounted.

    Raises:
        BrokenError: One is broken.
    """
    refusing = case.victim.number if case.fault is Fault.REFUSED else None
    with subject({"flush.messages": "1"}, refusing=refusing) as set_:
        outage_s = _under_load(set_, case, random)
        set_.settle()
        report = set_.check()._replace(outage_s=outage_s)
        inspect(set_)
        return report


def _under_load(set_: Subject, case: Case, random: Random) -> float:
    if case.fault is Fault.KILLED:
        for _ in range(3):
            with set_.writer():
                set_.wait(random.randrange(1, ACKS))
        return 0.0
    victim = set_.disks[case.victim.number]
    with set_.writer():
        set_.wait()
        victim.copy()
        set_.wait()
        strike(victim, case.fault, random)
        outage_s = set_.wait()
        bring_back(victim, case.comes)
        set_.wait()
    return outage_s


def strike(victim: ReplicaDisk, fault: Fault, random: Random) -> None:
    """Let a disk fail."""
    match fault:
        case Fault.DETACHED:
            victim.detach()
        case Fault.POWER:
            victim.cut_power(random.choice((JOURNAL_FLUSHED, JOURNAL_LOST)))
        case Fault.REFUSED:
            victim.refuse(True)
        case Fault.FULL:
            victim.fill()


def bring_back(victim: ReplicaDisk, comes: Return) -> None:
    """Mount a disk where the victim was."""
    match comes:
        case Return.BACK:
            victim.come_back()
        case Return.REPLACED:
            victim.be_replaced()
        case Return.RESTORED:
            victim.be_restored()


POLICIES: Final[Mapping[str, Mapping[str, str]]] = {
    "power-failure-no-flush": {},
    "power-failure-flush-messages-1": {"flush.messages": "1"},
}


def power_failure(random: Random, configs: Mapping[str, str]) -> Report:
    """Cut the power of all disks at once under load; return what is lost of acknowledged batches.

    Without a flush policy, acks=all says that every replica in sync has a record, in the page
    cache of one host.
    """
    with subject(configs) as set_:
        with set_.writer():
            set_.wait()
            time.sleep(random.uniform(0, 0.2))
            noted = set_.diary.stat().st_size  # before the cut: see `reliability.kinds.disks`
            for disk in set_.disks:
                disk.cut_power(JOURNAL_LOST)
        lines = set_.diary.read_bytes()
        kept = lines[:noted] + lines[noted:].replace(b"acked", b"unknown")
        set_.diary.write_bytes(kept)
        for disk in set_.disks:
            disk.come_back()
        with set_.writer():
            set_.wait()
        set_.settle()
        return set_.check(may_lose=True)
