"""One case: a number, from which a script, its execution on both sides, and damage are derived."""

import shutil
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from streamlog.errors import StreamLogError
from tests.programs.compat.answers import MAX_TIMESTAMP, told_by_reader
from tests.programs.compat.differential import comparison
from tests.programs.compat.differential.comparison import without_empty_epochs
from tests.programs.compat.differential.life import Life
from tests.programs.compat.differential.recovery import DamagedCase, write_checkpoint
from tests.programs.compat.differential.script import NOW, Script
from tests.programs.compat.kafka import Kafka

__all__ = ["Outcome", "compare"]

NAME = "orders-0"
EVER = 2**63 - 1


class Outcome(NamedTuple):
    """The result of a case.

    Attributes:
        differences: Unexpected differences; empty if all is well.
        kept_more: Whether we kept, and reported, data of the damaged directory that Kafka discards.
    """

    differences: list[str]
    kept_more: bool


class Sides(NamedTuple):
    """The directories of a case: as closed, and as they were while the log was open."""

    theirs: Path
    their_crash: Path
    ours: Path
    our_crash: Path


def compare(kafka: Kafka, seed: int, scratch: Path) -> Outcome:
    """Return the result of a case.

    Args:
        kafka: The oracle.
        seed: The number of the case.
        scratch: An existing directory for this case, which is left empty.
    """
    try:
        return _Case(kafka, seed, scratch).run()
    except StreamLogError as error:
        return Outcome([f"we failed: {type(error).__name__}: {error}"], kept_more=False)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


class _Case:
    def __init__(self, kafka: Kafka, seed: int, scratch: Path) -> None:
        self._kafka, self._scratch = kafka, scratch
        self._random = Random(seed)
        self._script = Script(self._random)
        self._sides = Sides(
            *(scratch / side / NAME for side in ("theirs", "their-crash", "ours", "our-crash"))
        )
        self._found: list[str] = []

    def run(self) -> Outcome:
        """Execute, read, damage."""
        theirs, ours = self._live()
        self._read(theirs, ours)
        end = theirs["logEndOffset"]
        return Outcome(self._found, kept_more=self._damage(end))

    def _note(self, what: str, theirs: object, ours: object) -> None:
        self._found += comparison.differences(what, theirs, ours)

    # ---- both write ----------------------------------------------------------------------------
    def _live(self) -> tuple[dict[str, Any], Life]:
        sides = self._sides
        for side in sides:
            side.parent.mkdir(parents=True)
        sides.theirs.mkdir()
        with Life(self._script, sides.ours) as life:
            life.live(self._random.choice((3, 12, 25)), sides.our_crash)
        self._times = self._searched()
        theirs = self._kafka.ask(
            "live",
            directory=str(sides.theirs),
            copy=str(sides.their_crash),
            now=NOW,
            config=self._script.config.to_properties(),
            steps=life.steps,
            timestamps=self._times,
        )
        if "error" in theirs:
            raise RuntimeError(f"the oracle failed: {theirs['message']}\n{theirs['printed']}")
        outcomes = comparison.our_names(life.steps, theirs.pop("outcomes"))
        comparison.mend_counts(life.steps, outcomes, life.outcomes)
        self._note("outcomes", outcomes, life.outcomes)
        return comparison.told(theirs), life

    def _searched(self) -> list[int]:
        now = self._script.now
        return sorted(
            {MAX_TIMESTAMP, 0, NOW, now, now + 1, *(self._random.randint(NOW, now) for _ in "1234")}
        )

    # ---- both read -----------------------------------------------------------------------------
    def _read(self, live: dict[str, Any], life: Life) -> None:
        sides, now = self._sides, self._script.now
        start = live["logStartOffset"]
        write_checkpoint(sides.theirs, "log-start", start)  # a broker does this; its log does not
        theirs = told_by_reader(sides.theirs, now=now, timestamps=self._times)
        comparison.mend_lookups(live, theirs)
        comparison.mend_stable_offset(live, theirs)
        seen = {**theirs}
        if start:
            comparison.forget_producers_that_are_gone(live, seen)
        self._note("our reading of Kafka's log", live, seen)
        copy = self._copied(sides.ours, "believed")
        is_clean = self._random.random() < 0.5
        ours = told_by_reader(sides.ours, now=now, timestamps=self._times)
        answer = self._open(
            copy,
            clean=is_clean,
            timestamps=self._times,
            logStartOffset=start,
        )
        comparison.mend_lookups(answer, ours)
        comparison.mend_stable_offset(answer, ours)
        answer, seen = comparison.told(answer), {**ours}
        if not is_clean and (start or self._script.is_compacted):
            comparison.forget_transactions_that_are_gone(answer, seen)
            comparison.forget_producers_that_are_gone(answer, seen)
        self._note("Kafka's reading of our log", *map(without_empty_epochs, (answer, seen)))
        theirs, ours = map(without_empty_epochs, (theirs, ours))
        is_same = self._script.is_exact and not life.may_roll_elsewhere
        for answers in (theirs, ours):
            comparison.forget_what_may_differ(
                answers,
                is_exact=self._script.is_exact,
                has_same_segments=not life.may_roll_elsewhere,
            )
        if start:
            comparison.forget_producers_that_are_gone(theirs, ours)
        self._note("both logs", theirs, ours)
        if is_same:
            pair = [self._files(side, live) for side in (sides.theirs, sides.ours)]
            self._note("the files of both logs", *pair)
        if not is_clean and self._script.has_plain_indexes:
            pair = [comparison.indexes(side, start) for side in (copy, sides.ours)]
            self._note("rebuilt indexes", *pair)

    def _files(self, side: Path, live: dict[str, Any]) -> dict[str, object]:
        return comparison.files(
            side,
            has_indexes=self._script.has_plain_indexes,
            log_start_offset=live["logStartOffset"],
            log_end_offset=live["logEndOffset"],
        )

    def _copied(self, directory: Path, name: str) -> Path:
        copy = self._scratch / name / NAME
        shutil.copytree(directory, copy, copy_function=shutil.copyfile)
        return copy

    def _open(self, directory: Path, *, clean: bool, **fields: Any) -> dict[str, Any]:
        """Return Kafka's answer about a directory that it opens."""
        return self._kafka.ask(
            "open",
            directory=str(directory),
            now=self._script.now,
            config=self._script.config.to_properties(),
            clean=clean,
            **({"recoveryPoint": EVER if clean else 0} | fields),
        )

    # ---- both recover --------------------------------------------------------------------------
    def _damage(self, log_end_offset: int) -> bool:
        """Damage a copy; return whether we kept more of it."""
        source = self._random.choice(self._sides)
        damaged = DamagedCase(
            source,
            self._scratch / "damaged",
            self._random,
            log_end_offset=log_end_offset,
            has_past=self._script.has_deleted,
        )
        verdict = damaged.compare(self._kafka, self._script.config, self._script.now)
        self._found += [f"{damaged.name}: {each}" for each in verdict.differences]
        return verdict.kept_more
