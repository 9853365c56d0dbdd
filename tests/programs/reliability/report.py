"""Makes `streamlog/RELIABILITY.md` of what the campaign, the bugs and the disk's figures printed.

    python -m tests.reliability --budget full --json > campaign.jsonl
    python -m tests.programs.reliability.teeth --json > bugs.jsonl
    python -m tests.programs.reliability.disk --json > disk.jsonl
    python -m tests.programs.reliability.report campaign.jsonl bugs.jsonl disk.jsonl \\
        > streamlog/RELIABILITY.md

`reliability.full` runs all of that. Nothing is measured here and no figure is written by hand. A
file may hold the output of several runs, one after the other. Whatever no run did, the machine
could not do, or was stopped early is listed as not covered.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.programs.reliability.bugs.catalogue import BUGS, NO_BUG, WITHOUT_A_BUG
from tests.programs.reliability.kinds import KINDS
from tests.programs.reliability.workloads import NAMED

PROMISES: Final = {  # by the policy as `tests.programs.reliability.disk` measures it
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
FILES: Final = ("campaign", "bugs", "disk")
WITHOUT_WORKLOADS: Final = {"mutations", "pipelines"}
NOT_COVERED: Final = (
    "disks that say a flush is done and lie; a real device's own cache",
    "a disk that refuses blocks of metadata or of a journal (`refused writes` are of records)",
    "several hosts on one file system, NFS, Ceph",
    "btrfs, and a kernel or an architecture other than the one above",
    "replication between roots, which does not exist",
)

Lines = Sequence[Mapping[str, Any]]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.programs.reliability.report", description=__doc__
    )
    for name in FILES:
        parser.add_argument(name, type=Path)
    arguments = parser.parse_args()
    print("\n".join(report(*(_lines(getattr(arguments, name)) for name in FILES))))
    return 0


def page(directory: Path) -> str:
    """Return the report of what a directory holds of a run."""
    return "\n".join([*report(*(_lines(directory / f"{name}.jsonl") for name in FILES)), ""])


def _lines(path: Path) -> Lines:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


def report(campaign: Lines, bugs: Lines, disk: Lines) -> Iterator[str]:
    """Yield the lines of the report."""
    tallies = [each for each in campaign if "kind" in each]
    done = [each for each in tallies if each["missing"] is None]
    figures = [each for each in disk if "table" in each]
    yield from (
        "# What was broken, and what came of it",
        "",
        "<!-- Made by `python -m tests.programs.reliability.report`; do not edit. -->",
        "",
        _when(campaign, tallies),
        "",
    )
    yield from _verdict(done, _ended(campaign))
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
    yield from _disk(disk, figures)
    yield from _left_out(tallies, [*_ended(campaign), *_ended(bugs), *_ended(disk)])


# ---- what was run when -------------------------------------------------------------------------
def _when(campaign: Lines, tallies: Lines) -> str:
    facts = [each for each in campaign if "seed" in each]
    if not facts:
        return "No campaign was run."
    seconds = sum(each["budget_seconds"] for each in facts)
    ended = max((each["ended"] for each in tallies), default="nobody knows when")
    return (
        f"{_stand(facts)}, {_each(facts, 'kernel')}, Python {_each(facts, 'python')}, "
        f"{_each(facts, 'cpus')} CPUs, seed {_each(facts, 'seed')}. Budget: "
        f"{_each(facts, 'budget')}, given {seconds:,.0f} seconds of work, from "
        f"{min(each['began'] for each in facts)} to {ended}."
    )


def _stand(facts: Lines) -> str:
    """Return at which state of the sources something was run; + where that had been changed."""
    return f"Commit {_each(facts, 'commit')}"


def _each(facts: Lines, name: str) -> str:
    return ", ".join(dict.fromkeys(str(each[name]) for each in facts))


def _own_run(lines: Lines) -> str:
    """Return at which state and when a part of its own was run."""
    facts = [each for each in lines if "commit" in each]
    return f"{_stand(facts)}, {_each(facts, 'began')}." if facts else "Not part of this run."


def _ended(lines: Lines) -> Lines:
    """Return the parts that did not end by themselves."""
    return [each for each in lines if "part" in each]


def _named(tally: Mapping[str, Any]) -> str:
    """Return how many named workloads a kind has gone through to the end."""
    if tally["kind"] in WITHOUT_WORKLOADS:
        return "its own"
    return str(min(tally["workloads"] - 1, len(NAMED)))


def _promises(figures: Lines) -> Iterator[str]:
    """Yield what is promised for each flush policy, and what power cuts have taken."""
    lost = {each["what"]: each["figures"] for each in figures if each["table"] == "losses"}
    kinds = sorted({what.rpartition(", ")[2] for what in lost})
    measured_how = (
        "under a writer that appends as fast as it can "
        "(`python -m tests.programs.reliability.disk`; in "
        "brackets, of how many records it had been told):"
        if lost
        else "whose losses this run did not measure:"
    )
    yield from (
        "",
        "## What survives what",
        "",
        "A process that dies takes nothing that was answered, whatever the settings. A power cut, "
        + measured_how,
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


def _disk(disk: Lines, figures: Lines) -> Iterator[str]:
    """Yield what the disk did."""
    yield from (
        "## What the disk did",
        "",
        _own_run(disk),
        "",
    )
    if not figures:
        return
    yield "A write costs its sync, and what is not synced stays in memory for half a minute."
    yield ""
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


def _verdict(done: Lines, ended: Lines) -> Iterator[str]:
    cases = sum(each["cases"] for each in done)
    findings = [found for each in done for found in each["findings"]]
    yield (
        f"**{cases:,} cases: {_harm(done, 'lost')} lost, {_harm(done, 'duplicated')} duplicated, "
        f"{_harm(done, 'torn')} torn, {_harm(done, 'untyped')} untyped errors, "
        f"{len(findings)} findings of any sort.**"
    )
    yield ""
    for each in ended:
        yield f"**{each['part']} {each['how']}.**"
        yield ""
    if findings:
        yield "Each finding can be seen again:"
        yield ""
        for found in findings:
            yield f"    {found['again']}"
            for sign in found["violations"]:
                yield from (f"        {line}" for line in sign.splitlines())
    elif cases and not ended:
        yield (
            f"With no failure in {cases:,} cases the rate is below {3 / cases:.1e} a case "
            "(95 %), of cases drawn as these were."
        )


def _bugs(bugs: Lines) -> Iterator[str]:
    names = [each.name for each in BUGS]
    hunts = {each["name"]: each for each in bugs if "name" in each}
    seeded = [hunts[name] for name in names if name in hunts]
    yield from ("## Bugs put in on purpose", "", _own_run(bugs), "")
    if not seeded:
        return
    found = sum(each["is_found"] for each in seeded)
    others = [name for name in names if name not in hunts]
    yield from (
        f"Found {found} of {len(seeded)}. "
        "`python -m tests.programs.reliability.teeth` puts each into a "
        "process of its own.",
        "",
        *(f"Not looked for: {name}." for name in others),
        *([""] if others else []),
        "| bug | cases to the first sign | what did not hold |",
        "|---|---|---|",
        *(
            f"| {each['name']} | {each['cases'] if each['is_found'] else 'NOT FOUND'} "
            f"| {each['sign']} |"
            for each in hunts.values()
            if each["name"] != NO_BUG
        ),
        "",
        *(f"- There is no bug {number}: {why}." for number, why in WITHOUT_A_BUG.items()),
        "",
    )
    if NO_BUG in hunts:
        sound = hunts[NO_BUG]
        what = "something, which is wrong" if sound["is_found"] else "nothing"
        yield f"Where there was no bug, {sound['cases']:,} of the same cases found {what}."
        yield ""


def _left_out(tallies: Lines, ended: Lines) -> Iterator[str]:
    missing = {each["kind"]: each["missing"] for each in tallies if each["missing"] is not None}
    asked = {*(each["kind"] for each in tallies), *(each["part"] for each in ended)}
    yield from (
        "## What is not covered",
        "",
        *(f"- {kind}: the machine lacked {what}" for kind, what in missing.items()),
        *(f"- {each['part']}: it {each['how']}" for each in ended),
        *(f"- {kind}: not part of this run" for kind in KINDS if kind not in asked),
        *(f"- {each}" for each in NOT_COVERED),
    )


if __name__ == "__main__":
    sys.exit(main())
