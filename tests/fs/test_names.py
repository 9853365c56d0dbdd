"""Names: distinct, never too long, and temporary ones that no other file can have."""

import re

import pytest

from streamlog.commits.identity import app_key
from streamlog.errors import InvalidTopicError
from streamlog.fs.names import (
    NAME_SIZE_MAX,
    fitting_name,
    is_temporary,
    temporary_base,
    temporary_path,
)
from streamlog.topic import check_topic_name, parse_partition_directory


@pytest.mark.parametrize("size", [1, 200, 254, 255])
def test_temporary_names_fit_and_differ(size: int) -> None:
    paths = [temporary_path(f"/logs/{'n' * size}") for _ in range(100)]
    names = [path.removeprefix("/logs/") for path in paths]
    assert len(set(names)) == 100
    assert all(len(name) <= NAME_SIZE_MAX and is_temporary(name) for name in names)
    assert {temporary_base(name) for name in names} == {"n" * min(size, 200)}
    assert temporary_path("state").startswith(".state~")


def test_no_topic_and_no_app_has_the_name_of_a_temporary_file() -> None:
    name = temporary_path("orders")
    with pytest.raises(InvalidTopicError):
        check_topic_name(name)
    assert parse_partition_directory(f"{name}-0") is None
    for app in (name, f"{name}/t", "x" * 500, f".{'~1-1.tmp' * 50}", ".", ".q~1-2.tmp"):
        assert not is_temporary(app_key(app)), app
    for other in ("state", "state.tmp", ".state.tmp", "q~1-2.tmp", ".~1-2.tmp", ".q~1-2.tmp.json"):
        assert not is_temporary(other), other


def test_a_short_name_is_kept_and_a_longer_one_keeps_prefix_hash_and_suffix() -> None:
    assert fitting_name("t" * 243, ".maintenance") == "t" * 243 + ".maintenance"
    one = fitting_name("t" * 250 + "a-1", ".maintenance")
    other = fitting_name("t" * 250 + "b-1", ".maintenance")
    assert one != other and len(one) == len(other) == NAME_SIZE_MAX
    assert re.fullmatch(r"t+=[0-9a-f]{32}\.maintenance", one)
    assert len(fitting_name("\u00e9" * 200).encode()) <= NAME_SIZE_MAX
