"""The tables of Kafka's test cases and bugs name tests that exist."""

import ast
import re

import pytest

from tests.meta.repository import ROOT, parse

CASES = (ROOT / "tests" / "programs" / "compat" / "CASES.md").read_text(encoding="utf-8")
ROWS = [line.split(" | ") for line in CASES.splitlines() if re.match(r"\| \d+[a-z]? \|", line)]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].strip("| "))
def test_every_case_has_an_existing_test_or_a_reason(row: list[str]) -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row[2])
    assert named or re.match(r"not applicable: .{20}", row[2])
    for path, function in named:
        tree = parse(ROOT / path)
        assert function in {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}


SEEDS = (ROOT / "tests" / "programs" / "reliability" / "SEEDS.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path_and_name", re.findall(r"`(tests/[\w/]+\.py::\w+)`", SEEDS))
def test_every_seed_has_an_existing_test(path_and_name: str) -> None:
    path, _, function = path_and_name.partition("::")
    tree = parse(ROOT / path)
    assert function in {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}


def test_every_seed_names_a_test() -> None:
    rows = [line for line in SEEDS.splitlines() if re.match(r"\| [A-Zq]\w+[- #]", line)]
    assert len(rows) > 40
    assert [row for row in rows if "::" not in row] == []


def test_cases_are_unique_and_in_order() -> None:
    numbers = [int(re.sub(r"\D", "", row[0])) for row in ROWS]
    assert numbers == sorted(numbers)
    assert len({row[0] for row in ROWS}) == len(ROWS) > 140
