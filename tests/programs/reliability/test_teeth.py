"""The seeded bugs apply to the current source, are seeded before import, and are found."""

import sys

import pytest

from tests.programs.reliability import teeth
from tests.programs.reliability.bugs.catalogue import BUGS, FAKE
from tests.programs.reliability.bugs.patching import Edit, StaleBugError, edited_source, install
from tests.programs.reliability.kinds import KINDS
from tests.programs.reliability.subject import OPERATIONS


@pytest.mark.parametrize("bug", [FAKE, *BUGS], ids=lambda bug: bug.name)
def test_every_bug_still_has_its_place(bug: teeth.Bug) -> None:
    for module in {edit.module for edit in bug.edits}:
        compile(edited_source(module, bug.edits), module, "exec")
    if bug.kind != "pytest":
        assert bug.kind in KINDS
        assert set(bug.operations) <= {*OPERATIONS, teeth.TROUBLE}
        return
    for test in bug.operations:  # a test that is gone would count as a bug that is not found
        file, _, name = test.partition("::")
        assert f"def {name.partition('[')[0]}" in (teeth.ROOT / file).read_text(encoding="utf-8")


def test_bug_numbers_are_unique() -> None:
    assert len({bug.name.split()[0] for bug in BUGS}) == len(BUGS)


def test_a_bug_without_its_place_is_refused() -> None:
    with pytest.raises(StaleBugError, match="0 times"):
        edited_source("streamlog.clock", [Edit("streamlog.clock", "no such text", "")])
    with pytest.raises(StaleBugError, match="no module"):
        edited_source("streamlog.nothing", [])


def test_a_bug_is_not_seeded_after_import() -> None:
    assert "streamlog.clock" in sys.modules
    with pytest.raises(StaleBugError, match="already imported"):
        install([Edit("streamlog.clock", "Clock", "Glock")])


def test_a_bug_that_nobody_can_overlook_is_found() -> None:
    found = teeth.hunt(FAKE.name, seconds=5)
    assert found.is_found and found.sign == "acknowledged_records_exist"
