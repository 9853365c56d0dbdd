"""`assert_exactly_once` and its parts: what passes, and the messages of failures."""

import time
from collections import Counter

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog import Record
from streamlog.errors import InvalidRequestError
from streamlog.testing import (
    Checkpoint,
    Topic,
    assert_exactly_once,
    assert_no_duplicates,
    assert_no_loss,
)
from tests.meta.repository import ROOT
from tests.support.projects import run_pytest

ORDERS = ["order 0", "order 1", "order 2"]


def said(check, *arguments, **named):
    with pytest.raises(AssertionError) as caught:
        check(*arguments, **named)
    return str(caught.value).splitlines()


@pytest.mark.parametrize(
    "rows",
    [
        ORDERS[::-1],
        [{"value": order, "batch": 7} for order in ORDERS],
        [Record(None, order.encode()) for order in ORDERS],
        pa.table({"value": pa.array(ORDERS).cast(pa.binary())}),
        pa.table({"value": pa.array(ORDERS).dictionary_encode()}),
        pa.table({"value": pa.array(ORDERS).cast(pa.string_view())}),
        pd.DataFrame({"value": ORDERS}),
    ],
    ids=["list", "dicts", "records", "bytes", "dictionary", "view", "pandas"],
)
def test_rows_of_all_kinds_compare(rows):
    assert_exactly_once(ORDERS, rows, key="value")
    assert_no_loss(rows, ORDERS, key="value")
    assert_no_duplicates(rows, ORDERS, key="value")


def test_all_differences_are_listed_row_by_row():
    assert said(assert_exactly_once, ORDERS, ["order 1", "order 1", "order 9", "order 2"]) == [
        "not exactly once by value: 3 rows in the source, 4 in the sink",
        "  lost   value='order 0'    source row 0",
        "  twice  value='order 1'    2 in the sink, 1 in the source: sink row 0, row 1",
        "  alien  value='order 9'    not in the source: sink row 2",
    ]


def test_each_part_asserts_its_half():
    lost, twice = ORDERS[:2], [*ORDERS, ORDERS[0]]

    assert_no_duplicates(ORDERS, lost)
    assert_no_loss(ORDERS, twice)
    assert len(said(assert_no_loss, ORDERS, lost)) == 2
    assert len(said(assert_no_duplicates, ORDERS, twice)) == 2


def test_a_duplicate_in_the_source_must_be_a_duplicate_in_the_sink():
    assert_exactly_once(["a", "a"], ["a", "a"])
    assert said(assert_exactly_once, ["a", "a"], ["a"])[1] == (
        "  lost   value='a'    1 of 2 in the sink: source row 0, row 1"
    )


def test_several_columns_may_be_the_key_and_nulls_are_values():
    source = [{"a": 1, "b": None}, {"a": 1, "b": "x"}]

    assert_exactly_once(source, source[::-1], key=["a", "b"])
    assert said(assert_exactly_once, source, [source[0], source[0]], key=["a", "b"])[1:] == [
        "  lost   a=1 b='x'    source row 1",
        "  twice  a=1 b=None    2 in the sink, 1 in the source: sink row 0, row 1",
    ]


def test_a_column_may_have_any_name():
    rows = [{"source": 1, "sink": 2, "row": 3, "key_0": 4}]

    assert_exactly_once(rows, rows)
    assert "source=1 sink=2 row=3 key_0=4" in said(assert_exactly_once, rows, [], key=None)[1]


def test_a_side_may_be_empty():
    assert_exactly_once([], [])
    assert len(said(assert_exactly_once, ORDERS, [])) == 4
    assert len(said(assert_exactly_once, [], ORDERS)) == 4


def test_numbers_compare_with_their_text():
    assert_exactly_once([1, 2], ["1", "2"])


def test_many_wrong_rows_are_counted():
    lines = said(assert_exactly_once, [str(number) for number in range(25)], ["0"] * 9)

    assert lines[11] == "  … and 14 more keys lost"
    assert lines[12].endswith("sink row 0, row 1, row 2, row 3, row 4")


def test_rows_of_a_topic_are_named_by_offset_and_batch(tmp_path):
    source = Topic(tmp_path / "root", "in", ORDERS)
    sink = Topic(tmp_path / "root", "out", [ORDERS[0]] * 2)
    offsets = tmp_path / "cp" / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "0").write_text('v1\n{"conf":{}}\n{"in":{"0":2}}')

    assert said(assert_exactly_once, source, sink, key="value", checkpoint=tmp_path / "cp")[1:] == [
        "  lost   value='order 1'    source row 1 (in-0 offset 1, batch 0)",
        "  lost   value='order 2'    source row 2 (in-0 offset 2, in no planned batch)",
        "  twice  value='order 0'    2 in the sink, 1 in the source:"
        " sink row 0 (out-0 offset 0), row 1 (out-0 offset 1)",
    ]


def test_two_topics_compare_by_key_and_value(tmp_path):
    source = Topic(tmp_path / "root", "in", [{"key": "k", "value": "v"}])
    sink = Topic(tmp_path / "root", "out", ["first", {"key": "k", "value": "v"}])

    assert said(assert_exactly_once, source, sink)[1] == (
        "  alien  key=None value='first'    not in the source: sink row 0 (out-0 offset 0)"
    )


@pytest.mark.parametrize("key", ["item", ["value", "item"], [], None])
def test_a_key_missing_on_one_side_is_refused(key):
    with pytest.raises(InvalidRequestError, match="no such column in common") as caught:
        assert_exactly_once([{"value": 1}], [{"item": 1}], key=key)

    assert "['item']" in caught.value.hint


def test_arguments_that_are_not_rows_are_refused():
    with pytest.raises(InvalidRequestError, match="not a table of rows"):
        assert_exactly_once("order 0", ORDERS)
    with pytest.raises(InvalidRequestError, match="cannot be compared"):
        assert_exactly_once([{"value": {"a": 1}}], ORDERS)


@given(st.lists(st.sampled_from("abc")), st.lists(st.sampled_from("abcd")))
def test_it_agrees_with_counting(source, sink):
    here, there = Counter(source), Counter(sink)
    lost = {name for name in here if there[name] < here[name]}
    extra = {name for name in there if there[name] > here[name]}

    for check, wrong in ((assert_no_loss, lost), (assert_no_duplicates, extra)):
        try:
            check(source, sink)
        except AssertionError as error:
            named = {line.split("'")[1] for line in str(error).splitlines()[1:]}
            assert named == wrong
        else:
            assert not wrong


def test_a_million_rows_are_compared_without_a_loop():
    numbers = pa.table({"value": np.arange(1_000_000)})

    start = time.process_time()
    lines = said(assert_exactly_once, numbers, numbers.slice(1), key="value")
    seconds = time.process_time() - start

    assert lines[1] == "  lost   value=0    source row 0"
    assert seconds < 15


def test_a_batch_is_unknown_if_offsets_are_not_of_topics(tmp_path):
    offsets = tmp_path / "cp" / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "0").write_text('v1\n{"conf":{}}\n{"logOffset":0}\n-')
    source = Topic(tmp_path / "root", "in", ORDERS)

    lines = said(assert_no_loss, source, ORDERS[:2], checkpoint=Checkpoint(tmp_path / "cp"))

    assert lines[1].endswith("source row 2 (in-0 offset 2, in no planned batch)")


def test_a_failure_shows_the_test_and_no_frame_of_the_helper(tmp_path):
    test = tmp_path / "test_mine.py"
    test.write_text(
        "from streamlog.testing import assert_exactly_once, flip_bit\n"
        "def test_rows():\n"
        "    assert_exactly_once(['a'], ['b'])\n"
        "def test_no_rows():\n"
        "    assert_exactly_once(7, ['b'])\n"
    )
    printed = run_pytest(tmp_path, [ROOT])
    assert "not exactly once by value: 1 rows in the source, 1 in the sink" in printed
    assert "InvalidRequestError" in printed
    assert "comparison.py" not in printed
    assert "tables.py" not in printed
    assert printed.count("test_mine.py:") >= 2
