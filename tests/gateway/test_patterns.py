"""Regular expressions of clients: RE2's language, whole names, bounded time and memory."""

import importlib
import time

import pytest

from streamlog.gateway import patterns
from streamlog.gateway.patterns import InvalidPatternError, matching


def test_a_pattern_matches_whole_names() -> None:
    names = ["orders", "orders-2", "my-orders"]
    assert matching("orders", names) == {"orders"}
    assert matching("orders.*", names) == {"orders", "orders-2"}
    assert matching("^.*orders$", names) == {"orders", "my-orders"}


@pytest.mark.parametrize("pattern", ["(", "*a", r"(a)\1", "(?=a)", "[b-a]", "(a{1000}){1000}"])
def test_what_is_not_of_re2s_language_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidPatternError):
        matching(pattern)


def test_a_hostile_pattern_is_matched_in_linear_time() -> None:
    begin = time.monotonic()
    assert matching("(a*)*b", ["a" * 249]) == frozenset()
    assert time.monotonic() - begin < 1


def test_without_the_library_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    assert patterns.importlib is importlib
    with pytest.raises(InvalidPatternError, match="pip install"):
        matching("a")
