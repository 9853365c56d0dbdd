"""Records of `__consumer_offsets` that a 4.2.0 broker wrote, decoded and encoded again."""

import base64
import json
from typing import Any

import pytest

from streamlog.protocol import internal_topics
from streamlog.protocol.internal_topics import Decoder, decode_internal
from streamlog.records.record import Record
from tests.meta.repository import ROOT

GOLDEN = ROOT / "tests/golden/C-broker/clean-expect/__consumer_offsets-0.consumer.jsonl"


def broker_records() -> list[Record]:
    rows = [json.loads(line) for line in GOLDEN.read_text(encoding="utf-8").splitlines()]
    decoded = [(_bytes(row["key"]), _bytes(row["value"])) for row in rows]
    return [Record(key=key, value=value) for key, value in decoded]


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def test_a_brokers_records_are_decoded() -> None:
    decoded = [decode_internal(Decoder.OFFSETS, record) for record in broker_records()]
    found = [each for each in decoded if each is not None]
    assert len(found) == len(decoded) == 11
    commits = [(key["data"], value) for key, value in found if key["type"] == "1"]
    assert {key["group"] for key, _ in commits} == {"group-b"}
    assert all(value is None or value["version"] == "4" for _, value in commits)
    members = [
        member
        for key, value in found
        if key["type"] == "2" and value is not None
        for member in value["data"]["members"]
    ]
    assert members[0]["subscription"]["topics"] == ["codec-lz4", "keyed"]
    assert members[0]["assignment"] == {
        "assignedPartitions": [
            {"topic": "codec-lz4", "partitions": [0]},
            {"topic": "keyed", "partitions": [0, 1, 2]},
        ],
        "userData": None,
    }


def test_a_brokers_bytes_are_encoded_alike() -> None:
    for record in broker_records():
        assert record.key is not None
        number = int.from_bytes(record.key[:2], "big")
        found = internal_topics._TYPES[Decoder.OFFSETS][number]
        key, end = found.key.decode(record.key, 0, 2)
        assert (record.key[:2] + found.key.encode(key, 0), end) == (record.key, len(record.key))
        if record.value is not None:
            version = int.from_bytes(record.value[:2], "big")
            values, _ = found.value.decode(record.value, version, 2)
            assert record.value[:2] + found.value.encode(values, version) == record.value


# What a transaction coordinator of 4.2 writes: version 1, tagged fields only where they are set.
TRANSACTION: dict[str, Any] = {
    "producerId": 7,
    "producerEpoch": 2,
    "transactionTimeoutMs": 60_000,
    "transactionStatus": 1,
    "transactionPartitions": [{"topic": "orders", "partitionIds": [0, 3]}],
    "transactionLastUpdateTimestampMs": 1_795_227_546_032,
    "transactionStartTimestampMs": 1_795_227_546_000,
    "clientTransactionVersion": 2,
}


@pytest.mark.parametrize("version", [0, 1])
def test_transactions_of_both_versions(version: int) -> None:
    found = internal_topics._TYPES[Decoder.TRANSACTIONS][0]
    expected = dict(TRANSACTION)
    if version == 0:
        del expected["clientTransactionVersion"]
    value = version.to_bytes(2, "big") + found.value.encode(expected, version)
    key = b"\x00\x00\x00\x02tx"
    decoded = decode_internal(Decoder.TRANSACTIONS, Record(key=key, value=value))
    assert decoded == (
        {"type": "0", "data": {"transactionalId": "tx"}},
        {"version": str(version), "data": expected},
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b""),
        (b"", b""),
        (b"\x00", None),
        (b"\x00\x63\x00\x01a", None),
        (b"\x00\x02\x00\x05a", None),
        (b"\x00\x02\x00\x01a", b"\x00"),
        (b"\x00\x02\x00\x01a", b"\x00\x09"),
        (b"\x00\x02\x00\x01a", b"\x00\x03\x00"),
    ],
    ids=["no key", "empty", "short", "unknown type", "truncated", "short value", "unknown version",
         "truncated value"],
)  # fmt: skip
def test_records_of_no_known_form_are_left_as_they_are(
    key: bytes | None, value: bytes | None
) -> None:
    assert decode_internal(Decoder.OFFSETS, Record(key=key, value=value)) is None
