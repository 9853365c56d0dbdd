"""Searches find what a plain loop over all records finds, page by page, within their limits."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.clock import ManualClock
from streamlog.errors import InvalidOptionError, UnknownTopicError
from streamlog.records.record import Record
from streamlog.root.manager import LogManager
from streamlog.topic import TopicPartition
from streamlog.web.record_filter import RecordFilter
from streamlog.web.record_search import (
    RecordQuery,
    SearchLimits,
    one_record,
    parse_border,
    parse_cursor,
    ranges_of,
    search,
)

START = 1_700_000_000_000
COUNT = 3000


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("searched") / "root"
    with LogManager.open(path, create=True) as manager:
        manager.create_topic("orders", 3)
        for number in range(3):
            log = manager.log("orders", number)
            for start in range(0, COUNT, 100):
                log.append([_order(number, start + at) for at in range(100)])
    return str(path)


def _order(partition: int, number: int) -> Record:
    value = {"id": number, "who": {"name": "zoë" if number % 7 == 0 else "bob"}, "lines": [number]}
    return Record(
        key=b"k%d" % (number % 10),
        value=json.dumps(value, ensure_ascii=number % 2 == 0).encode(),
        timestamp=START + number * 1000 + partition,
    )


def every_page(root: str, query: RecordQuery, rows: int) -> list[tuple[int, int]]:
    """Return partition and offset of all matches, by following the cursor."""
    found, cursor = [], ""
    while True:
        page = search(
            root,
            RecordQuery(
                topic=query.topic,
                partition=query.partition,
                start=query.start,
                end=query.end,
                is_newest_first=query.is_newest_first,
                filter=query.filter,
                cursor=parse_cursor(cursor),
            ),
            SearchLimits(rows=rows),
        )
        found += [(row["partition"], row["offset"]) for row in page.rows]
        assert page.problem is None
        if page.cursor is None:
            return found
        assert page.cursor != cursor
        cursor = page.cursor


CASES: list[tuple[RecordFilter, Callable[[int], bool]]] = [
    (RecordFilter(), lambda n: True),
    (RecordFilter(key="k3"), lambda n: n % 10 == 3),
    (RecordFilter(text='"id": 12'), lambda n: str(n).startswith("12")),
    (RecordFilter(json_path="who.name", json_value="zoë"), lambda n: n % 7 == 0),
    (RecordFilter(json_path="id", json_value="1234"), lambda n: n == 1234),
    (RecordFilter(json_path="lines[0]", json_value="77"), lambda n: n == 77),
    (RecordFilter(json_path="who.name"), lambda n: True),
    (RecordFilter(json_path="who.age"), lambda n: False),
    (RecordFilter(key="k0", json_path="who.name", json_value="zoë"), lambda n: n % 70 == 0),
]


@pytest.mark.parametrize("wanted, holds", CASES)
@pytest.mark.parametrize("is_newest_first", [True, False])
def test_all_pages_together_are_all_matches_in_order(
    root: str, wanted: RecordFilter, holds: Callable[[int], bool], is_newest_first: bool
) -> None:
    query = RecordQuery(topic="orders", filter=wanted, is_newest_first=is_newest_first)
    found = every_page(root, query, 400)
    times = sorted((n * 1000 + p, p, n) for p in range(3) for n in range(COUNT) if holds(n))
    expected = [(p, n) for _, p, n in (reversed(times) if is_newest_first else times)]
    assert found == expected


def test_a_range_is_by_offset_or_time(root: str) -> None:
    now = START + COUNT * 1000
    start, end = parse_border("100", now), parse_border(f"s@{START + 150_000}", now)
    query = RecordQuery(topic="orders", partition=0, start=start, end=end)
    assert ranges_of(root, query) == [(TopicPartition("orders", 0), 100, 150)]
    assert len(every_page(root, query, 500)) == 50


def test_limits_end_a_search_and_the_cursor_goes_on(root: str) -> None:
    query = RecordQuery(
        topic="orders", is_newest_first=False, filter=RecordFilter(text='"id": 2999')
    )
    page = search(root, query, SearchLimits(bytes=1000))
    assert ([row["partition"] for row in page.rows], page.stopped) == ([0], "bytes")
    assert page.scanned == COUNT  # one batch is looked at whole
    assert page.cursor == "1:0,2:0"
    late = search(root, query, SearchLimits(ms=-1.0), clock=ManualClock())
    assert (late.stopped, late.scanned) == ("time", 0)
    assert late.cursor == "0:0,1:0,2:0"


def test_damage_does_not_hide_what_is_before_it(root: str, tmp_path: Path) -> None:
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(root, copy)
    (log,) = (copy / "orders-1").glob("*.log")
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    page = search(
        str(copy), RecordQuery(topic="orders", is_newest_first=False), SearchLimits(rows=9000)
    )
    by_partition = dict.fromkeys(range(3), 0)
    for row in page.rows:
        by_partition[row["partition"]] += 1
    assert by_partition[0] == by_partition[2] == COUNT
    assert 0 < by_partition[1] < COUNT


def test_one_record_has_its_headers_and_a_gap_has_none(root: str) -> None:
    found = one_record(root, TopicPartition("orders", 1), 7)
    assert found is not None
    assert (found["key"], found["timestamp"], found["headers"]) == (b"k7", START + 7001, None)
    assert one_record(root, TopicPartition("orders", 1), COUNT) is None
    assert one_record(root, TopicPartition("orders", 1), COUNT * 100) is None


def test_wrong_words_are_errors(root: str) -> None:
    for text in ("yesterday", "-5"):
        with pytest.raises(InvalidOptionError):
            parse_border(text, START)
    with pytest.raises(InvalidOptionError):
        parse_cursor("0:1;drop")
    with pytest.raises(InvalidOptionError):
        RecordFilter(json_path="a..[x]")
    with pytest.raises(InvalidOptionError):
        RecordFilter(json_value="1")
    with pytest.raises(UnknownTopicError):
        search(root, RecordQuery(topic="order"), SearchLimits())
    with pytest.raises(UnknownTopicError):
        search(root, RecordQuery(topic="orders", partition=9), SearchLimits())


SCALARS = st.one_of(st.text(max_size=8), st.integers(-(10**9), 10**9), st.booleans(), st.none())


@given(
    st.recursive(
        SCALARS,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.dictionaries(st.sampled_from(["a", "b", "long name", "é"]), inner, max_size=3),
        ),
        max_leaves=8,
    ),
    st.booleans(),
    st.sampled_from([None, 2]),
)
def test_each_path_of_a_document_finds_it(
    document: Any, is_ascii: bool, indent: int | None
) -> None:
    value = json.dumps(document, ensure_ascii=is_ascii, indent=indent).encode()
    batch = pa.record_batch({"key": pa.array([None], pa.binary()), "value": pa.array([value])})
    for path, found in _paths(document):
        assert RecordFilter(json_path=path).matching(batch).num_rows == 1, path
        text = found if isinstance(found, str) else json.dumps(found)
        if text and not isinstance(found, dict | list):
            wanted = RecordFilter(json_path=path, json_value=text)
            assert wanted.matching(batch).num_rows == 1, (path, text)
            other = RecordFilter(json_path=path, json_value=f"{text}x")
            assert other.matching(batch).num_rows == 0


def _paths(document: Any, before: str = "") -> list[tuple[str, Any]]:
    if isinstance(document, dict):
        steps = [(f"{before}.{key}" if before else key, each) for key, each in document.items()]
    elif isinstance(document, list):
        steps = [(f"{before}[{at}]", each) for at, each in enumerate(document)]
    else:
        return []
    return [pair for path, each in steps for pair in ((path, each), *_paths(each, path))]
