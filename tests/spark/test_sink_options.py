import pytest

from streamlog.errors import InvalidOptionError, InvalidRequestError, InvalidTopicError
from streamlog.records.acks import Acks
from streamlog.records.record import CompressionType
from streamlog.spark.options import Use
from streamlog.spark.sink_options import SinkOptions

MINIMAL = {"path": "/data/log"}


def stream(**options):
    return SinkOptions.of(
        MINIMAL | {k.replace("__", "."): v for k, v in options.items()}, Use.STREAM_WRITE
    )


def batch(**options):
    return SinkOptions.of(
        MINIMAL | {k.replace("__", "."): v for k, v in options.items()}, Use.BATCH_WRITE
    )


def test_without_options_kafkas_defaults_hold():
    assert stream() == SinkOptions(roots=("/data/log",))


def test_options_come_with_names_in_lower_case_as_spark_sends_them():
    options = stream(
        topic="orders",
        kafka__compression__type="zstd",
        kafka__acks="1",
        flush__messages="10",
        txnappid="daily",
        onreplaymismatch="SKIP",
        checkpointlocation="/cp",
        queryname="q",
    )

    assert options == SinkOptions(
        roots=("/data/log",),
        topic="orders",
        compression=CompressionType.ZSTD,
        acks=Acks.LEADER,
        flush_messages=10,
        app_id="daily",
        on_mismatch="skip",
        checkpoint_location="/cp",
        query_name="q",
    )


def test_a_file_uri_names_the_root():
    assert SinkOptions.of({"path": "file:///data/log/"}, Use.BATCH_WRITE).roots == ("/data/log",)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"path": "hdfs://name/log"}, "unknown kind of object store"),
        ({"path": "hdfs:/log"}, "not a local path"),
        ({"path": ""}, "option path is missing"),
        ({"kafka.compression.type": "brotli"}, "kafka.compression.type"),
        ({"kafka.acks": "2"}, "kafka.acks"),
        ({"flush.messages": "0"}, "flush.messages"),
        ({"flush.messages": "many"}, "flush.messages"),
        ({"flush.ms": "-1"}, "flush.ms"),
        ({"txnAppId": " "}, "txnAppId is empty"),
        ({"txnVersion": "1"}, "txnVersion is not valid in streaming writes"),
        ({"onReplayMismatch": "ignore"}, "onReplayMismatch"),
        ({"subscribe": "orders"}, "subscribe"),
        ({"topics": "orders"}, "unknown option"),
    ],
)
def test_a_senseless_option_is_an_error_that_names_it(options, text):
    with pytest.raises(InvalidOptionError, match=text):
        SinkOptions.of(MINIMAL | options, Use.STREAM_WRITE)


def test_a_topic_that_cannot_be_is_refused_before_anything_runs():
    with pytest.raises(InvalidTopicError):
        stream(topic="a b")


def test_a_batch_gives_both_of_app_and_version_or_neither():
    both = batch(txnappid="daily", txnversion="7")

    assert (both.app_id, both.version) == ("daily", 7)
    with pytest.raises(InvalidOptionError, match="txnVersion requires txnAppId"):
        batch(txnversion="7")
    with pytest.raises(InvalidOptionError, match="txnAppId requires txnVersion"):
        batch(txnappid="daily")


@pytest.mark.parametrize(
    ("options", "app"),
    [
        ({"topic": "orders"}, "query-1/orders"),
        ({}, "query-1/*"),
        ({"topic": "orders", "txnAppId": "daily"}, "daily/orders"),
        ({"txnAppId": "daily"}, "daily/*"),
    ],
)
def test_an_app_is_who_writes_and_the_target(options, app):
    assert stream(**options).identity("query-1", 3)[:2] == (app, 3)


def test_without_a_query_somebody_has_to_say_who_writes():
    with pytest.raises(InvalidRequestError, match="commit has no writer"):
        stream().identity(None, 3)
