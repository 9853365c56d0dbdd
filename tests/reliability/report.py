"""Makes `streamlog/RELIABILITY.md` of what a run of the campaign and of the seeded bugs printed.

    python -m tests.reliability --budget full --json > campaign.jsonl
    python -m tests.reliability.teeth --json > bugs.jsonl
    python -m tests.reliability.report campaign.jsonl bugs.jsonl > streamlog/RELIABILITY.md

Nothing is measured here and no figure is written by hand. A kind that a run left out, and one that
its machine could not do, is listed as what is not covered.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.reliability.kinds import KINDS

PROMISES: Final = (
    ("each append (`flush.messages=1`)", "nothing that was answered", "nothing"),
    ("a commit of the sink", "nothing that was answered", "nothing"),
    ("`flush()`, a roll, closing in order", "nothing before it", "nothing"),
    (
        "`flush.messages=N`, `flush.ms=T`",
        "what is older",
        "up to N records; T ms, and what a sync takes",
    ),
    ("none (Kafka's default)", "nothing", "whatever the kernel had not written"),
)
NOT_COVERED: Final = (
    "disks that say a flush is done and lie; a real device's own cache",
    "several hosts on one file system, NFS, Ceph",
    "an fsync that fails below a real file system (the model of it is exercised by `errors`)",
    "btrfs, and a kernel or an architecture other than the one above",
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.reliability.report", description=__doc__)
    parser.add_argument("campaign", type=Path)
    parser.add_argument("bugs", type=Path)
    arguments = parser.parse_args()
    facts, *tallies = _lines(arguments.campaign)
    print("\n".join(report(facts, tallies, _lines(arguments.bugs))))
    return 0


def _lines(path: Path) -> list[dict[str, Any]]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


Lines = Sequence[Mapping[str, Any]]


def report(facts: Mapping[str, Any], tallies: Lines, bugs: Lines) -> Iterator[str]:
    """Yield the lines of the report."""
    done = [each for each in tallies if each["missing"] is None]
    yield from (
        "# What was broken, and what came of it",
        "",
        "<!-- Made by `python -m tests.reliability.report`; do not edit. -->",
        "",
        f"Commit {facts['commit']}, {facts['kernel']}, Python {facts['python']}, "
        f"{facts['cpus']} CPUs, seed {facts['seed']}. Budget: {facts['budget']}, given "
        f"{facts['budget_seconds']:,.0f} seconds.",
        "",
    )
    yield from _verdict(done)
    yield from (
        "",
        "## What survives what",
        "",
        "A process that dies takes nothing that was answered, whatever the settings. A power cut:",
        "",
        "| synced at | is kept | may be lost |",
        "|---|---|---|",
        *(f"| {' | '.join(row)} |" for row in PROMISES),
        "",
        f"Violations of these promises in the run above: {_harm(done, 'lost')}.",
        "",
        "## What was done",
        "",
        "| kind | workloads | cases | seconds | findings |",
        "|---|---|---|---|---|",
        *(
            f"| {each['kind']} | {each['workloads']:,} | {each['cases']:,} | {each['seconds']:,.0f}"
            f" | {len(each['findings'])} |"
            for each in done
        ),
        "",
    )
    yield from _bugs(bugs)
    yield from _left_out(tallies)


def _harm(done: Lines, name: str) -> int:
    return sum(each["harms"].get(name, 0) for each in done)


def _verdict(done: Lines) -> Iterator[str]:
    cases = sum(each["cases"] for each in done)
    findings = [line for each in done for line in each["findings"]]
    yield (
        f"**{cases:,} cases: {_harm(done, 'lost')} lost, {_harm(done, 'duplicated')} duplicated, "
        f"{_harm(done, 'torn')} torn, {_harm(done, 'untyped')} untyped errors, "
        f"{len(findings)} findings of any sort.**"
    )
    yield ""
    if findings:
        yield "Each finding can be seen again:"
        yield ""
        yield from (f"    {line}" for line in findings)
    else:
        yield (
            f"With no failure in {cases:,} cases the rate is below {3 / max(cases, 1):.1e} a case "
            "(95 %), of cases drawn as these were."
        )


def _bugs(bugs: Lines) -> Iterator[str]:
    seeded = [each for each in bugs if each["name"] != "no bug" and each["name"][:2] != "00"]
    found = sum(each["is_found"] for each in seeded)
    yield from (
        "## Bugs put in on purpose",
        "",
        f"Found {found} of {len(seeded)}. `python -m tests.reliability.teeth` puts each into a "
        "process of its own.",
        "",
        "| bug | cases to the first sign | what did not hold |",
        "|---|---|---|",
        *(
            f"| {each['name']} | {each['cases'] if each['is_found'] else 'NOT FOUND'} "
            f"| {each['sign']} |"
            for each in seeded
        ),
        "",
    )


def _left_out(tallies: Lines) -> Iterator[str]:
    missing = {each["kind"]: each["missing"] for each in tallies if each["missing"] is not None}
    asked = {each["kind"] for each in tallies}
    yield from (
        "## What is not covered",
        "",
        *(f"- {kind}: the machine lacked {what}" for kind, what in missing.items()),
        *(f"- {kind}: not part of this run" for kind in KINDS if kind not in asked),
        *(f"- {each}" for each in NOT_COVERED),
    )


if __name__ == "__main__":
    sys.exit(main())
