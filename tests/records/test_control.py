"""Control records: keys, markers, and refused input."""

import pytest

from streamlog.errors import InvalidRecordError
from streamlog.records.control import (
    ControlRecordType,
    EndTransactionMarker,
    build_marker,
    parse_control_key,
    parse_marker,
)
from streamlog.records.record import Record

COMMIT_KEY = bytes.fromhex("00000001")
VALUE = bytes.fromhex("000000000009")


@pytest.mark.parametrize("kind", list(ControlRecordType)[:-1])
def test_the_key_names_the_kind(kind: ControlRecordType) -> None:
    assert parse_control_key(b"\0\0" + int(kind).to_bytes(2, "big")) is kind


def test_kinds_of_a_newer_kafka_are_unknown_and_no_error() -> None:
    assert parse_control_key(bytes.fromhex("00000063")) is ControlRecordType.UNKNOWN
    assert parse_marker(Record(bytes.fromhex("0000ffff"), VALUE)) is None


def test_a_key_of_a_later_version_is_read_as_version_0() -> None:
    assert parse_control_key(bytes.fromhex("0005000177")) is ControlRecordType.COMMIT


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0", bytes.fromhex("ffff0001")])
def test_short_keys_and_negative_versions_are_refused(key: bytes | None) -> None:
    with pytest.raises(InvalidRecordError):
        parse_control_key(key)


def test_a_value_of_a_later_version_is_read_and_its_further_bytes_ignored() -> None:
    record = Record(COMMIT_KEY, bytes.fromhex("000500000009") + b"more")
    marker = parse_marker(record)
    assert marker == EndTransactionMarker(ControlRecordType.COMMIT, 9)
    assert marker is not None and marker.is_commit


@pytest.mark.parametrize("value", [None, b"", VALUE[:5], bytes.fromhex("ffff00000009")])
def test_short_values_and_negative_versions_are_refused(value: bytes | None) -> None:
    with pytest.raises(InvalidRecordError):
        parse_marker(Record(COMMIT_KEY, value))


def test_other_control_records_are_no_markers() -> None:
    with pytest.raises(InvalidRecordError):
        build_marker(
            EndTransactionMarker(ControlRecordType.LEADER_CHANGE, 0),
            producer_id=1,
            producer_epoch=0,
            timestamp=0,
        )
