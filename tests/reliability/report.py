"""Makes `streamlog/RELIABILITY.md` of what the campaign, the bugs and the disk's figures printed.

    python -m tests.reliability --budget full --json > campaign.jsonl
    python -m tests.reliability.teeth --json > bugs.jsonl
    python -m tests.reliability.disk --json > disk.jsonl
    python -m tests.reliability.report campaign.jsonl bugs.jsonl disk.jsonl \\
        > streamlog/RELIABILITY.md

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
from tests.reliability.workloads import NAMED

PROMISES: Final = {  # by the policy as `tests.reliability.disk` measures it
    "flush.messages=1": ("each append (`flush.messages=1`)", "all that was answered", "nothing"),
    "a commit of the sink": ("each commit of the sink", "all that was answered", "nothing"),
    "flush.messages=100": ("`flush.messages=100`", "what is older", "99 records"),
    "flush.messages=1000": ("`flush.messages=1000`", "what is older", "999 records"),
    "flush.ms=100": ("`flush.ms=100`", "what is older", "100 ms, and while a sync runs"),
    "none (Kafka's default)": ("none (Kafka's default)", "nothing", "all the kernel kept back"),
}
TABLES: Final = {
    "writes": "Blocks of 4 KiB, written in a file of 64 MiB in order or in none:",
    "write-back": "Until the kernel has written half of 16 MiB that nobody asked it to sync:",
    "flush policies": "Appends of ten records of 1 KiB, by one writer:",
}
WITHOUT_WORKLOADS: Final = {"mutations", "pipelines"}
NOT_COVERED: Final = (
    "disks that say a flush is done and lie; a real device's own cache",
    "a disk that refuses blocks of metadata or of a journal (`refused writes` are of records)",
    "several hosts on one file system, NFS, Ceph",
    "btrfs, and a kernel or an architecture other than the one above",
    "replication between roots, which does not exist",
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.reliability.report", description=__doc__)
    parser.add_argument("campaign", type=Path)
    parser.add_argument("bugs", type=Path)
    parser.add_argument("disk", type=Path)
    arguments = parser.parse_args()
    facts, *tallies = _lines(arguments.campaign)
    print("\n".join(report(facts, tallies, _lines(arguments.bugs), _lines(arguments.disk))))
    return 0


def _lines(path: Path) -> list[dict[str, Any]]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


Lines = Sequence[Mapping[str, Any]]


def report(facts: Mapping[str, Any], tallies: Lines, bugs: Lines, figures: Lines) -> Iterator[str]:
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
    yield from _promises(figures)
    yield from (
        f"Violations of these promises in the run above: {_harm(done, 'lost')}.",
        "",
        "## What was done",
        "",
        f"Of the {len(NAMED)} named workloads a kind has gone through so many to the end; then "
        "come all short sequences of operations, then random ones.",
        "",
        "| kind | named | workloads | cases | seconds | findings |",
        "|---|---|---|---|---|---|",
        *(
            f"| {each['kind']} | {_named(each)} | {each['workloads']:,} | {each['cases']:,} "
            f"| {each['seconds']:,.0f} | {len(each['findings'])} |"
            for each in done
        ),
        "",
    )
    yield from _bugs(bugs)
    yield from _disk(figures)
    yield from _left_out(tallies)


def _named(tally: Mapping[str, Any]) -> str:
    """Return how many named workloads a kind has gone through to the end."""
    if tally["kind"] in WITHOUT_WORKLOADS:
        return "its own"
    return str(min(tally["workloads"] - 1, len(NAMED)))


def _promises(figures: Lines) -> Iterator[str]:
    """Yield what is promised for each flush policy, and what power cuts have taken."""
    lost = {each["what"]: each["figures"] for each in figures if each["table"] == "losses"}
    kinds = sorted({what.rpartition(", ")[2] for what in lost})
    yield from (
        "",
        "## What survives what",
        "",
        "A process that dies takes nothing that was answered, whatever the settings. A power cut, "
        "under a writer that appends as fast as it can (`python -m tests.reliability.disk`; in "
        "brackets, of how many records it had been told):",
        "",
        f"| synced at | is kept | may be lost |{''.join(f' most lost on {k} |' for k in kinds)}",
        f"|---|---|---|{'---|' * len(kinds)}",
    )
    for policy, row in PROMISES.items():
        measured = (lost.get(f"{policy}, {kind}") for kind in kinds)
        cells = (
            f"{each['most lost']:,} in {each['power cuts']} cuts ({each['records told']:,})"
            for each in measured
            if each is not None
        )
        yield f"| {' | '.join((*row, *cells))} |"
    yield from (
        "",
        "`flush()`, a roll and closing in order keep all that came before them.",
        "",
    )


def _disk(figures: Lines) -> Iterator[str]:
    """Yield what the disk did."""
    yield from (
        "## What the disk did",
        "",
        "What a write costs is its sync, and what is not synced stays in memory for half a minute.",
        "",
    )
    for table, title in TABLES.items():
        rows = [each for each in figures if each["table"] == table]
        if rows:
            names = list(rows[0]["figures"])
            yield from (title, "", f"| | {' | '.join(names)} |", "|---|" + "---|" * len(names))
            for each in rows:
                cells = (_figure(each["figures"][name]) for name in names)
                yield f"| {each['what']} | {' | '.join(cells)} |"
            yield ""


def _figure(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:,.0f}"


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
