"""Generates `streamlog/RELIABILITY.md` from the output of the campaign, the bugs and the disk.

    python -m tests.reliability --budget full --json > campaign.jsonl
    python -m tests.programs.reliability.teeth --json > bugs.jsonl
    python -m tests.programs.reliability.disk --json > disk.jsonl
    python -m tests.programs.reliability.report campaign.jsonl bugs.jsonl disk.jsonl \\
        > streamlog/RELIABILITY.md

`tests.programs.reliability.full` runs all four. This module measures nothing, and no figure is
written by hand, except those of `OBJECT_STORES` and `REPLICAS`, which other runs and programs
measure. A file may hold the output of several runs in sequence. Kinds that none of them ran, that
the machine could not run or that were stopped are listed as not covered.
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

PROMISES: Final = {  # by the name of the policy in `tests.programs.reliability.disk`
    "flush.messages=1": ("each append (`flush.messages=1`)", "all acknowledged records", "nothing"),
    "a commit of the sink": ("each commit of the sink", "all acknowledged records", "nothing"),
    "flush.messages=100": ("`flush.messages=100`", "older records", "99 records"),
    "flush.messages=1000": ("`flush.messages=1000`", "older records", "999 records"),
    "flush.ms=100": ("`flush.ms=100`", "older records", "100 ms, plus the time of a sync"),
    "none (Kafka's default)": ("none (Kafka's default)", "nothing", "all that is unwritten"),
}
TABLES: Final = {
    "writes": "Blocks of 4 KiB, written to a file of 64 MiB in sequential or random order:",
    "write-back": "Time until the kernel has written half of 16 MiB without a request to sync:",
    "flush policies": "Appends of ten records of 1 KiB, by one writer:",
}
FILES: Final = ("campaign", "bugs", "disk")
WITHOUT_WORKLOADS: Final = {"mutations", "pipelines"}
NOT_COVERED: Final = (
    "disks that falsely report a completed flush; a real device's own cache",
    "a disk that refuses metadata or journal blocks (`refused writes` refuses record blocks)",
    "several hosts on one file system, NFS, Ceph",
    "btrfs, and a kernel or an architecture other than the one above",
    "replicas on several hosts",
)

OBJECT_STORES: Final = """\
## Object stores

The kinds `crashes with an object store` and `failing object stores` apply the same workloads to a root in an
object store: appends are commits of apps that commit once; rolls, flushes and cleanings are maintenance. The
process dies after each request; or a request fails with a lost answer, three of them, 503 once or from then on,
a body cut short, a store that is full or read-only, or wrong credentials; or it seems to fail and takes place a
few requests later, or after the process is dead and another one is at work; or another driver with the same
checkpoint comes before it. Then another process reads, continues as Spark would, waits a week, does all
maintenance and reads again. The invariants are those of directories. Besides, no object may be left that the
journal does not name, two processes must know the same state, and opening takes at most seven requests.

`python -m tests.reliability --only "crashes with an object store" "failing object stores" --seconds 130
--seed 20261123`, measured on 2026-11-23, not in the run above: 286 cases, no finding. Bugs 201 to 216
are seeded for these kinds; `python -m tests.programs.reliability.teeth` found 16 of 16, the median after 1 case.
"""  # noqa: E501 - the page has longer lines

REPLICAS: Final = """\
## Replicas

Other programs test replicas; their figures were measured on 2026-11-22, not in the run above.

| program | tests | outcome |
|---|---|---|
| `python -m tests.programs.replication.specification` | all states of a small partition, as a published TLA+ specification enumerates them, taken with streamlog's own functions | 737,794 distinct states, no violation; each of the four older truncation rules violates the specification's invariant, at depth 9, 11, 11 and 12 |
| `python -m tests.programs.replication.simulation` | a partition with simulated disks, clocks, network, crashes, power cuts, restored backups, reassignments and re-created topics, from one seed | 200,000 seeds (`--first 1000000 --seeds 200000`), 144,981,613 steps, 966,414 crashes and restarts, 328,429 elections, 1,222,553 acknowledged appends: no violation; one false alarm of the simulation itself, since cured |
| `python -m tests.programs.replicas` | a writer with `acks=all` over three real disks: killed; or the disk of the leader or of a follower unmounted, cut off from power, full, or refusing writes; the same disk, an empty one or an older copy returns | no acknowledged batch lost, except by a power failure of all disks at once |
| `python -m tests.programs.replicas --only spark` | two streaming queries over three real disks, one that writes with `kafka.acks=all` and one that reads: the leader's or a follower's disk is cut off from power in mid-stream, and the same disk, an empty one or an older copy returns; or the job is killed before or after the cut and started again | 14 cases: no query failed, and every root has every row exactly once |

Replicas on one host share one power supply. `python -m tests.programs.replicas --only power-failure` cuts
all three disks at once: 74 of 90 acknowledged batches were lost without a flush policy, none of 158 with
`flush.messages=1`.

The simulation finds the bugs of other implementations that
[its page](../tests/programs/replication/README.md) lists. [Replicas](../docs/replicas.md) states the promises,
[the decision page](decisions/replication.md) the reasons.
"""  # noqa: E501 - rows of a table

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
    """Return the report on the output files in a directory."""
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
        "# Results of the fault campaign",
        "",
        "<!-- Generated by `python -m tests.programs.reliability.report`; do not edit. -->",
        "",
        _when(campaign, tallies),
        "",
    )
    yield from _verdict(done, _ended(campaign))
    yield from _promises(figures)
    yield from (
        f"Violations of these guarantees in the run above: {_harm(done, 'lost')}.",
        "",
        "## Cases",
        "",
        f"Each kind runs the {len(NAMED)} named workloads (completed ones: column *named*), then "
        "all short sequences of operations, then random ones.",
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
    yield OBJECT_STORES
    yield REPLICAS
    yield from _left_out(tallies, [*_ended(campaign), *_ended(bugs), *_ended(disk)])


# ---- the run -------------------------------------------------------------------------------------
def _when(campaign: Lines, tallies: Lines) -> str:
    facts = [each for each in campaign if "seed" in each]
    if not facts:
        return "No campaign was run."
    seconds = sum(each["budget_seconds"] for each in facts)
    ended = max((each["ended"] for each in tallies), default="an unknown time")
    return (
        f"{_stand(facts)}, {_each(facts, 'kernel')}, Python {_each(facts, 'python')}, "
        f"{_each(facts, 'cpus')} CPUs, seed {_each(facts, 'seed')}. Budget: "
        f"{_each(facts, 'budget')}, {seconds:,.0f} seconds of work, from "
        f"{min(each['began'] for each in facts)} to {ended}."
    )


def _stand(facts: Lines) -> str:
    """Return the commit of the sources; `+` marks uncommitted changes."""
    return f"Commit {_each(facts, 'commit')}"


def _each(facts: Lines, name: str) -> str:
    return ", ".join(dict.fromkeys(str(each[name]) for each in facts))


def _own_run(lines: Lines) -> str:
    """Return commit and start of a part that runs separately."""
    facts = [each for each in lines if "commit" in each]
    return f"{_stand(facts)}, {_each(facts, 'began')}." if facts else "Not part of this run."


def _ended(lines: Lines) -> Lines:
    """Return the parts that were stopped or crashed."""
    return [each for each in lines if "part" in each]


def _named(tally: Mapping[str, Any]) -> str:
    """Return how many named workloads a kind completed."""
    if tally["kind"] in WITHOUT_WORKLOADS:
        return "its own"
    return str(min(tally["workloads"] - 1, len(NAMED)))


def _promises(figures: Lines) -> Iterator[str]:
    """Yield the guarantee of each flush policy, and the measured losses in power cuts."""
    lost = {each["what"]: each["figures"] for each in figures if each["table"] == "losses"}
    kinds = sorted({what.rpartition(", ")[2] for what in lost})
    measured_how = (
        "measured under a writer that appends as fast as it can "
        "(`python -m tests.programs.reliability.disk`; in brackets, the number of acknowledged "
        "records):"
        if lost
        else "which this run did not measure:"
    )
    yield from (
        "",
        "## Durability by flush policy",
        "",
        "A killed process loses no acknowledged record, whatever the settings. Losses in power "
        "cuts, " + measured_how,
        "",
        f"| synced | guaranteed | may be lost |{''.join(f' most lost on {k} |' for k in kinds)}",
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
        "`flush()`, a roll and an orderly close make everything before them durable.",
        "",
    )


def _disk(disk: Lines, figures: Lines) -> Iterator[str]:
    """Yield the disk measurements."""
    yield from (
        "## Disk measurements",
        "",
        _own_run(disk),
        "",
    )
    if not figures:
        return
    yield "The cost of a write is its sync. Unsynced data stays in memory for half a minute."
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
        f"{len(findings)} findings of any kind.**"
    )
    yield ""
    for each in ended:
        yield f"**{each['part']} {each['how']}.**"
        yield ""
    if findings:
        yield "Commands that reproduce the findings:"
        yield ""
        for found in findings:
            yield f"    {found['again']}"
            for sign in found["violations"]:
                yield from (f"        {line}" for line in sign.splitlines())
    elif cases and not ended:
        yield (
            f"With no failure in {cases:,} cases, the failure rate is below {3 / cases:.1e} per "
            "case (95 % confidence), for cases drawn in the same way."
        )


def _bugs(bugs: Lines) -> Iterator[str]:
    names = [each.name for each in BUGS]
    hunts = {each["name"]: each for each in bugs if "name" in each}
    seeded = [hunts[name] for name in names if name in hunts]
    yield from ("## Seeded bugs", "", _own_run(bugs), "")
    if not seeded:
        return
    found = sum(each["is_found"] for each in seeded)
    others = [name for name in names if name not in hunts]
    yield from (
        f"Found {found} of {len(seeded)}. "
        "`python -m tests.programs.reliability.teeth` seeds each into a separate process.",
        "",
        *(f"Not tested: {name}." for name in others),
        *([""] if others else []),
        "| bug | cases until found | violated invariant |",
        "|---|---|---|",
        *(
            f"| {each['name']} | {each['cases'] if each['is_found'] else 'NOT FOUND'} "
            f"| {each['sign']} |"
            for each in hunts.values()
            if each["name"] != NO_BUG
        ),
        "",
        *(f"- Not in this list: bug {number}, {why}." for number, why in WITHOUT_A_BUG.items()),
        "",
    )
    if NO_BUG in hunts:
        sound = hunts[NO_BUG]
        what = "something: a false alarm" if sound["is_found"] else "nothing"
        yield f"Without a seeded bug, {sound['cases']:,} of the same cases found {what}."
        yield ""


def _left_out(tallies: Lines, ended: Lines) -> Iterator[str]:
    missing = {each["kind"]: each["missing"] for each in tallies if each["missing"] is not None}
    asked = {*(each["kind"] for each in tallies), *(each["part"] for each in ended)}
    yield from (
        "## Not covered",
        "",
        *(f"- {kind}: the machine lacked {what}" for kind, what in missing.items()),
        *(f"- {each['part']}: it {each['how']}" for each in ended),
        *(f"- {kind}: not part of this run" for kind in KINDS if kind not in asked),
        *(f"- {each}" for each in NOT_COVERED),
    )


if __name__ == "__main__":
    sys.exit(main())
