import pytest

from streamlog.errors import InvalidOptionError
from streamlog.records.acks import Acks


@pytest.mark.parametrize(
    ("given", "level"),
    [("0", Acks.NONE), (1, Acks.LEADER), ("all", Acks.ALL), ("ALL", Acks.ALL), (-1, Acks.ALL)],
)
def test_levels_are_spelled_as_kafkas_producer_takes_them(given, level):
    assert Acks.of(given) is level
    assert Acks.of(level) is level


@pytest.mark.parametrize("given", ["2", "", "quorum", True])
def test_another_level_is_refused(given):
    with pytest.raises(InvalidOptionError, match="0, 1 or all"):
        Acks.of(given)
