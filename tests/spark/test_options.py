"""The table of options: what is known, where, and what is said about the rest."""

import logging

import pytest

from streamlog.errors import InvalidOptionError
from streamlog.spark.options import (
    OPTIONS,
    Use,
    check_options,
    parse_boolean,
    parse_duration_ms,
    parse_integer,
)


def test_names_differ_in_more_than_case():
    assert len({option.name.lower() for option in OPTIONS}) == len(OPTIONS)


def test_lower_cased_names_get_their_spelling_back():
    checked = check_options({"path": "/r", "startingoffsets": "earliest"}, Use.STREAM_READ)
    assert checked == {"path": "/r", "startingOffsets": "earliest"}


@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [
        ("subscribePatern", "subscribePattern"),
        ("startingoffset", "startingOffsets"),
        ("maxoffsetpertrigger", "maxOffsetsPerTrigger"),
        ("failondataLos", "failOnDataLoss"),
        ("kafka.isolation.lvel", "kafka.isolation.level"),
        ("kafka.groupid", "kafka.group.id"),
    ],
)
def test_misspelt_option_names_the_nearest_known_one(misspelt, meant):
    with pytest.raises(InvalidOptionError, match="unknown option") as caught:
        check_options({misspelt: "x"}, Use.STREAM_READ)
    assert caught.value.got == misspelt
    assert meant in caught.value.hint


def test_nearest_name_is_one_that_makes_sense_there():
    with pytest.raises(InvalidOptionError) as caught:
        check_options({"topics": "x"}, Use.STREAM_WRITE)
    assert caught.value.hint == "did you mean topic?"


def test_option_without_any_likeness_has_no_hint():
    with pytest.raises(InvalidOptionError, match="unknown option") as caught:
        check_options({"zzzzzz": "x"}, Use.READ)
    assert caught.value.hint is None


@pytest.mark.parametrize(
    ("name", "use", "text"),
    [
        ("endingOffsets", Use.STREAM_READ, "ending offset is not valid in streaming queries"),
        ("endingTimestamp", Use.STREAM_READ, "ending offset is not valid in streaming queries"),
        ("topic", Use.READ, "topic is not valid in the source: expected it in the sink"),
        ("subscribe", Use.BATCH_WRITE, "not valid in batch writes: expected it in the source"),
        ("txnAppId", Use.STREAM_READ, "not valid in streaming queries: expected it in the sink"),
    ],
)
def test_option_in_the_wrong_place_is_refused(name, use, text):
    with pytest.raises(InvalidOptionError, match=text):
        check_options({name: "x"}, use)


def test_trigger_limits_are_passed_over_in_batch_with_a_warning(caplog):
    assert check_options({"maxoffsetspertrigger": "5"}, Use.BATCH_READ) == {}
    assert "maxOffsetsPerTrigger is ignored in batch queries" in caplog.text


def test_client_options_without_meaning_give_one_warning(caplog):
    options = {
        "path": "/r",
        "kafka.bootstrap.servers": "b:9092",
        "kafka.security.protocol": "SSL",
        "kafkaconsumer.polltimeoutms": "5",
    }
    assert check_options(options, Use.STREAM_READ) == {"path": "/r"}
    (record,) = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert all(name in record.getMessage() for name in options if name != "path")


def test_client_options_that_spark_refuses_are_refused_with_a_way_out():
    with pytest.raises(InvalidOptionError, match=r"auto\.offset\.reset") as caught:
        check_options({"kafka.auto.offset.reset": "earliest"}, Use.READ)
    assert "startingOffsets" in caught.value.hint


def test_option_set_to_nothing_counts_as_not_set():
    assert check_options({"path": "/r", "topic": None}, Use.BATCH_WRITE) == {"path": "/r"}


def test_several_paths_are_refused():
    with pytest.raises(InvalidOptionError, match="several paths"):
        check_options({"paths": '["/a", "/b"]'}, Use.READ)


@pytest.mark.parametrize("text", ["0", "-1", "many", "", "1.5"])
def test_integers_name_their_bounds(text):
    with pytest.raises(InvalidOptionError, match=r"minPartitions.*from 1 to"):
        parse_integer({"minPartitions": text}, "minPartitions")


def test_integer_and_boolean_read_with_blanks_and_in_any_case():
    assert parse_integer({"minPartitions": " 7 "}, "minPartitions") == 7
    assert parse_integer({}, "minPartitions") is None
    assert parse_boolean({"failOnDataLoss": " FALSE"}, "failOnDataLoss", default=True) is False
    with pytest.raises(InvalidOptionError, match="expected true or false"):
        parse_boolean({"failOnDataLoss": "yes"}, "failOnDataLoss", default=True)


@pytest.mark.parametrize(
    ("text", "ms"),
    [("15m", 900_000), ("250", 250), ("250ms", 250), ("2 s", 2000), ("1H", 3_600_000)],
)
def test_durations_read_as_spark_reads_them(text, ms):
    assert parse_duration_ms({"maxTriggerDelay": text}, "maxTriggerDelay", default="15m") == ms


@pytest.mark.parametrize("text", ["", "m", "-5s", "5 weeks", "1.5h", "5ss"])
def test_impossible_durations_are_refused(text):
    with pytest.raises(InvalidOptionError, match="such as 15m"):
        parse_duration_ms({"maxTriggerDelay": text}, "maxTriggerDelay", default="15m")
