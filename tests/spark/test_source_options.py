"""What the options of a read mean, and the rules of Spark's Kafka source about them."""

import os

import pytest

from streamlog.arrow.log_view import EARLIEST, LATEST
from streamlog.errors import InvalidOptionError, InvalidTopicError
from streamlog.records.record import IsolationLevel
from streamlog.spark.options import Use
from streamlog.spark.source_options import SourceOptions, TriggerLimits
from streamlog.topic import TopicPartition


def parse(use=Use.STREAM_READ, **options):
    given = {"path": "/log", "subscribe": "orders"}
    if {"subscribePattern", "assign"} & options.keys():
        del given["subscribe"]
    return SourceOptions.parse({**given, **options}, use)


def refused(text, use=Use.STREAM_READ, **options):
    with pytest.raises(InvalidOptionError, match=text) as caught:
        parse(use, **options)
    return caught.value


def test_defaults_are_those_of_the_kafka_source_but_committed_reads():
    options = parse()
    assert options.paths == ("/log",)
    assert options.choice.topics == ("orders",)
    assert options.starting.everywhere == LATEST
    assert options.fail_on_data_loss
    assert options.limits == TriggerLimits()
    assert options.limits.max_delay_ms == 15 * 60 * 1000
    assert options.isolation is IsolationLevel.READ_COMMITTED
    assert options.columns == (
        "key", "value", "topic", "partition", "offset", "timestamp", "timestampType",
    )  # fmt: skip
    assert options.parallelism == len(os.sched_getaffinity(0))


def test_batch_starts_at_the_earliest_and_ends_at_the_latest():
    options = parse(Use.BATCH_READ)
    assert options.starting.everywhere == EARLIEST
    assert options.ending.everywhere == LATEST


# ---- path ---------------------------------------------------------------------------------------
def test_path_is_needed():
    assert refused("path is missing", path=" ").hint


@pytest.mark.parametrize("path", ["file:/log", "file:///log", "/log/", "/x/../log"])
def test_path_is_made_absolute_and_plain(path):
    assert parse(path=path).paths == ("/log",)


def test_a_url_of_an_object_store_is_spelled_in_one_way():
    assert parse(path="s3a://bucket/log/").paths == ("s3://bucket/log",)
    assert parse(path="gs://bucket/orders-0", subscribe="a").choice.topics == ("a",)


def test_other_remote_paths_are_refused():
    refused("unknown kind of object store", path="hdfs://name/log")
    refused("not a local path", path="hdfs:/log")


# ---- which topics -------------------------------------------------------------------------------
def test_no_choice_of_topics_is_refused():
    with pytest.raises(InvalidOptionError, match="no option selects topics"):
        SourceOptions.parse({"path": "/log"}, Use.READ)


@pytest.mark.parametrize("path", ["/log/my-topic-7", "/log/my-topic-7/00000000000000000012.log"])
def test_path_of_a_partition_needs_no_choice_of_topics(path):
    alone = SourceOptions.parse({"path": path}, Use.STREAM_READ)
    assert alone.choice.partitions == (TopicPartition("my-topic", 7),)
    assert parse(path=path, subscribe="my-topic").choice.topics == ("my-topic",)


def test_two_choices_of_topics_are_refused():
    with pytest.raises(InvalidOptionError, match=r"more than one option.*subscribe and assign"):
        SourceOptions.parse({"path": "/log", "subscribe": "a", "assign": '{"a":[0]}'}, Use.READ)


def test_subscribe_takes_names_with_blanks_and_drops_repeats():
    choice = parse(subscribe=" a, b ,,a").choice
    assert choice.topics == choice.required() == ("a", "b")
    assert choice.wants("a", 7)
    assert not choice.wants("c", 0)


def test_subscribe_refuses_what_no_topic_can_be_called():
    with pytest.raises(InvalidTopicError):
        parse(subscribe="or/ders")
    refused("names no topic", subscribe=" , ")


def test_pattern_matches_whole_names_and_no_internal_topics():
    choice = parse(subscribePattern="order.*|__.*").choice
    assert choice.wants("orders", 3)
    assert not choice.wants("reorders", 3)
    assert not choice.wants("__consumer_offsets", 0)
    assert choice.required() == ()


def test_pattern_that_is_none_is_refused():
    refused("not a Java regular expression", subscribePattern="(")
    refused("is empty", subscribePattern=" ")


def test_assign_names_single_partitions():
    choice = parse(assign='{"b": [1], "a": [2, 0]}').choice
    assert choice.partitions == (("a", 0), ("a", 2), ("b", 1))
    assert choice.required() == ("a", "b")
    assert choice.wants("a", 2)
    assert not choice.wants("a", 1)


@pytest.mark.parametrize(
    "text",
    ["a", "{}", "[]", '{"a": []}', '{"a": 0}', '{"a": ["0"]}', '{"a": [-1]}', '{"a": [[0]]}'],
)
def test_assign_in_another_shape_is_refused(text):
    refused("assign", assign=text)


# ---- from where to where ------------------------------------------------------------------------
def test_timestamp_for_all_goes_before_those_by_partition_and_those_before_offsets():
    everything = {
        "startingTimestamp": "1700000000000",
        "startingOffsetsByTimestamp": '{"orders": {"0": 5}}',
        "startingOffsets": "earliest",
    }
    rule = parse(**everything).starting
    assert (rule.option, rule.everywhere) == ("startingTimestamp", 1_700_000_000_000)
    assert rule.is_timestamp
    assert rule.without_match == "error"
    del everything["startingTimestamp"]
    rule = parse(**everything).starting
    assert (rule.option, rule.number_for(TopicPartition("orders", 0))) == (
        "startingOffsetsByTimestamp",
        5,
    )
    assert rule.number_for(TopicPartition("orders", 1)) is None
    del everything["startingOffsetsByTimestamp"]
    assert parse(**everything).starting.everywhere == EARLIEST


def test_offsets_by_partition_and_by_topic():
    rule = parse(
        startingOffsets='{"orders": {"0": 23, "1": -2, "2": -1}, "b": "Earliest"}'
    ).starting
    assert [rule.number_for(TopicPartition("orders", n)) for n in range(4)] == [23, -2, -1, None]
    assert rule.number_for(TopicPartition("b", 9)) == EARLIEST


@pytest.mark.parametrize("text", ["newest", "", '{"orders": {"0": -3}}', '{"orders"', '{"a": "x"}'])
def test_impossible_starting_offsets_are_refused(text):
    refused("startingOffsets", startingOffsets=text)


def test_ending_timestamps_without_a_match_mean_the_end():
    options = parse(Use.BATCH_READ, endingTimestamp="5", startingOffsetsByTimestampStrategy="error")
    assert options.ending.without_match == "latest"


@pytest.mark.parametrize("text", ["-1", "soon", str(2**63)])
def test_impossible_timestamps_are_refused(text):
    refused("startingTimestamp", startingTimestamp=text)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"startingOffsets": "latest"}, "starting offset can't be latest"),
        ({"startingOffsets": '{"orders": {"0": 1, "1": -1}}'}, "can't be latest .* orders-1"),
        ({"startingOffsets": '{"orders": "latest"}'}, "starting offset can't be latest"),
        ({"endingOffsets": "earliest"}, "ending offset can't be earliest"),
        ({"endingOffsets": '{"orders": {"0": -2}}'}, "can't be earliest .* orders-0"),
    ],
)
def test_batch_that_starts_at_the_end_or_ends_at_the_start_is_refused(options, text):
    refused(text, Use.BATCH_READ, **options)
    if "startingOffsets" in options:
        parse(Use.READ, **options)  # which it is, is not known at load()


# ---- the rest -----------------------------------------------------------------------------------
def test_limits_are_read():
    limits = parse(
        maxOffsetsPerTrigger="100",
        minOffsetsPerTrigger="10",
        maxTriggerDelay="2m",
        maxBytesPerTrigger="1000",
    ).limits
    assert limits == TriggerLimits(
        max_offsets=100, min_offsets=10, max_bytes=1000, max_delay_ms=120_000
    )


def test_minimum_above_maximum_is_refused():
    refused("above maxOffsetsPerTrigger", maxOffsetsPerTrigger="5", minOffsetsPerTrigger="6")


def test_columns_come_in_the_order_of_the_kafka_source():
    assert parse(columns="offset, VALUE").columns == ("value", "offset")
    assert parse(columns="value,headers").columns == ("value", "headers")
    assert parse(includeHeaders="true").columns[-1] == "headers"
    refused("unknown column.*got price", columns="value,price")
    refused("columns is empty", columns=" ,")


@pytest.mark.parametrize("group", ["", "../x", ".hidden", "a/b", "-x", "x" * 201])
def test_group_that_cannot_name_a_file_is_refused(group):
    refused("kafka.group.id", **{"kafka.group.id": group})


def test_isolation_level_and_invalid_timestamps_are_closed_sets():
    options = parse(**{"kafka.isolation.level": "READ_UNCOMMITTED", "invalidTimestamps": "null"})
    assert options.isolation is IsolationLevel.READ_UNCOMMITTED
    assert options.invalid_timestamps == "null"
    refused("isolation", **{"kafka.isolation.level": "serializable"})
    refused("invalidTimestamps", invalidTimestamps="zero")


# ---- decoding -----------------------------------------------------------------------------------
def test_without_a_format_nothing_is_decoded():
    assert parse().decoding is None
    assert "_error" not in parse().columns


def test_a_single_topic_gives_its_name_to_the_subjects(tmp_path):
    options = parse(keyFormat="Avro", valueFormat="PROTOBUF", schemaRegistry="http://r:8081")

    assert options.columns[-1] == "_error"
    key, value = options.decoding.key, options.decoding.value
    assert (key.format, key.subject, key.registry) == ("avro", "orders-key", "http://r:8081")
    assert (value.format, value.subject, value.is_framed) == ("protobuf", "orders-value", True)
    assert not options.decoding.fails_fast


def test_what_is_decoded_is_spelled_out(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = parse(
        valueFormat="protobuf", valueSchema="@order.proto", valueMessage="shop.Order",
        schemaRegistry="schemas", schemaFraming="none", mode="failFast",
    )  # fmt: skip

    spec = options.decoding.value
    assert spec.schema == f"@{tmp_path}/order.proto"
    assert spec.registry == f"{tmp_path}/schemas"
    assert (spec.subject, spec.message, spec.is_framed) == (None, "shop.Order", False)
    assert options.decoding.key is None
    assert options.decoding.fails_fast


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("option valueSchema requires valueFormat", {"valueSchema": "id INT"}),
        ("keySubject requires keyFormat", {"valueFormat": "json", "keySubject": "s"}),
        ("schemaRegistry requires valueFormat or keyFormat", {"schemaRegistry": "http://r"}),
        ("mode requires", {"mode": "PERMISSIVE"}),
        ("invalid value for option valueFormat", {"valueFormat": "xml"}),
        ("invalid value for option mode", {"valueFormat": "json", "mode": "DROPMALFORMED"}),
        ("both name", {"valueFormat": "avro", "valueSchema": '"int"', "valueSubject": "s"}),
        (
            "valueSubject is missing",
            {"valueFormat": "avro", "schemaRegistry": "http://r", "subscribe": "a,b"},
        ),
        (
            "valueSubject is missing",
            {"valueFormat": "avro", "schemaRegistry": "http://r", "subscribePattern": "a.*"},
        ),
        ("neither a registry", {"valueFormat": "avro", "schemaRegistry": "s3://b/schemas"}),
        ("schemaFraming", {"valueFormat": "avro", "valueSchema": '"int"', "schemaFraming": "x"}),
    ],
)
def test_a_decoding_that_is_not_complete_is_refused(text, options):
    refused(text, **options)


def test_credentials_do_not_come_as_options():
    error = refused(
        "no credentials", valueFormat="avro", schemaRegistry="https://me:secret@registry"
    )
    assert "secret" not in str(error)
