"""Runs the campaign, the seeded bugs and the disk measurements, and generates the report.

    python -m tests.programs.reliability.full [--minutes 75] [--seed N]
        [--directory .cache/reliability] [--page streamlog/RELIABILITY.md]

    campaign.jsonl   each kind in its own process, two at a time, pipelines first
    bugs.jsonl       then the seeded bugs
    disk.jsonl       then the disk, alone, because it is a measurement
    the page         generated from these, even if some of them failed

Ends within `--minutes`: a part that exceeds its time is terminated, the lines it has printed count,
and the page lists the rest as missing. Below 30 minutes, only the campaign without pipelines runs.
Exits with 0 only if every part completed and nothing was found.

Killing this command also ends its parts and unmounts their images. The next run removes what a
SIGKILL leaves behind (`tests.programs.reliability.scratch`).
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from random import SystemRandom
from typing import Final, NamedTuple

from tests.programs.reliability import machine, scratch
from tests.programs.reliability.kinds import KINDS
from tests.programs.reliability.report import page

ROOT: Final = Path(__file__).parents[3]
PROCESSES: Final = 2
WHOLE_FROM: Final = 30.0  # minutes
PIPELINES: Final = "pipelines"
PIPELINES_S: Final = 900.0  # one round takes about this long on two cores, and always completes
TEETH_S: Final = 600.0
DISK_S: Final = 420.0
GRACE_S: Final = 90.0  # to finish the case in progress, and to start up
TO_END_S: Final = 20.0


class Part(NamedTuple):
    """A command with a time limit, and the file for its output."""

    name: str
    arguments: tuple[str, ...]
    output: Path
    most_s: float

    def start(self) -> "Running":
        """Start the command; it ends when this process does."""
        with self.output.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", *self.arguments],
                cwd=ROOT,
                stdout=output,
                preexec_fn=partial(scratch.die_with, os.getpid(), signal.SIGTERM),
                start_new_session=True,
            )
        return Running(self, process, time.monotonic() + self.most_s)


class Running(NamedTuple):
    """A running part and its deadline."""

    part: Part
    process: "subprocess.Popen[bytes]"
    deadline: float

    def end(self) -> None:
        """Terminate the part; kill it if that takes too long."""
        self.process.terminate()
        try:
            self.process.wait(TO_END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def main() -> int:
    arguments = parse()
    scratch.end_in_order()
    removed = scratch.remove_dead()
    if removed:
        print(f"removed leftovers of a dead run: {', '.join(map(str, removed))}")
    start = time.monotonic()
    directory: Path = arguments.directory
    directory.mkdir(parents=True, exist_ok=True)
    for name in ("campaign", "bugs", "disk"):
        (directory / f"{name}.jsonl").write_bytes(b"")
    is_good = True
    for phase in phases(directory, arguments.minutes * 60, arguments.seed):
        is_good &= run(phase)
        took = (time.monotonic() - start) / 60
        print(f"{phase[0].output.name}: complete after {took:.1f} minutes", flush=True)
    arguments.page.write_text(page(directory), encoding="utf-8")
    print(f"{arguments.page}: {'no findings' if is_good else 'findings or failed parts'}")
    return 0 if is_good else 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.programs.reliability.full", description=__doc__
    )
    parser.add_argument("--minutes", type=float, default=75.0)
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(1 << 32))
    parser.add_argument("--directory", type=Path, default=ROOT / ".cache" / "reliability")
    parser.add_argument("--page", type=Path, default=ROOT / "streamlog" / "RELIABILITY.md")
    return parser.parse_args()


def phases(directory: Path, seconds: float, seed: int) -> list[list[Part]]:
    """Return the phases, to run in sequence; the parts of a phase run concurrently."""
    if seconds < WHOLE_FROM * 60:
        return [campaign(directory / "campaign.jsonl", seconds - GRACE_S, seed, without=PIPELINES)]
    teeth = ("tests.programs.reliability.teeth", "--json")
    disk = ("tests.programs.reliability.disk", "--json")
    return [
        campaign(directory / "campaign.jsonl", seconds - TEETH_S - DISK_S - GRACE_S, seed),
        [Part("bugs", teeth, directory / "bugs.jsonl", TEETH_S)],
        [Part("disk", disk, directory / "disk.jsonl", DISK_S)],
    ]


def campaign(output: Path, seconds: float, seed: int, *, without: str = "") -> list[Part]:
    """Return a part for each kind, longest first, that together take `seconds`.

    Pipelines get a fixed time; the other kinds share the rest.
    """
    shares = {kind: each.share for kind, each in KINDS.items() if kind not in (PIPELINES, without)}
    rest = PROCESSES * seconds - (0 if without == PIPELINES else PIPELINES_S)
    whole = sum(shares.values())
    parts = [
        _kind(kind, output, rest * share / whole, seed)
        for kind, share in sorted(shares.items(), key=lambda each: -each[1])
    ]
    if without != PIPELINES:
        parts.insert(0, _kind(PIPELINES, output, PIPELINES_S, seed)._replace(most_s=seconds))
    return parts


def _kind(kind: str, output: Path, seconds: float, seed: int) -> Part:
    command = ("tests.programs.reliability", "--budget", "full", "--json", "--only", kind)
    given = ("--seconds", f"{seconds:.0f}", "--seed", str(seed))
    return Part(kind, (*command, *given), output, seconds + GRACE_S)


def run(parts: Iterable[Part]) -> bool:
    """Run parts, at most `PROCESSES` at a time; return whether all completed without findings."""
    waiting, running, is_good = deque(parts), list[Running](), True
    try:
        while waiting or running:
            while waiting and len(running) < PROCESSES:
                running.append(waiting.popleft().start())
            time.sleep(0.1)
            for each in [*running]:
                is_late = time.monotonic() > each.deadline
                if is_late:
                    each.end()
                if each.process.poll() is not None:
                    running.remove(each)
                    is_good &= each.process.returncode == 0
                    if is_late or each.process.returncode not in (0, 1):
                        _note_end(each.part, each.process.returncode, is_late=is_late)
    finally:
        for each in running:
            each.end()
    return is_good


def _note_end(part: Part, code: int, *, is_late: bool) -> None:
    """Record that a part timed out, died of a signal or failed; each is a finding."""
    how = f"was stopped after {part.most_s:.0f} seconds" if is_late else f"ended with {code}"
    print(f"{part.name} {how}", file=sys.stderr, flush=True)
    with part.output.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"part": part.name, "how": how, "at": machine.now()}) + "\n")


if __name__ == "__main__":
    sys.exit(main())
