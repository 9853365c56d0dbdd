"""The message codec: Kafka's own bytes, every type there and back, and bytes that are malformed."""

from random import Random
from typing import Any

import pytest

from streamlog.errors import CorruptRecordError, InvalidRequestError
from streamlog.protocol.messages import Field, Message, read_unsigned_varint, write_unsigned_varint

TOPIC_ID = "cWFg3HwMTCePLEybwOOohQ"
HEADER = Message(
    "RequestHeader",
    Field("requestApiKey", "int16"),
    Field("requestApiVersion", "int16"),
    Field("correlationId", "int32"),
    Field("clientId", "string", "1+", nullable="1+", default="", flexible="none"),
    versions="1-2",
    flexible="2+",
)
INNER = (Field("id", "uuid"), Field("epochs", "[]int32", nullable="2+"), Field("flag", "bool"))
EVERYTHING = Message(
    "Everything",
    Field("small", "int8"),
    Field("short", "int16"),
    Field("port", "uint16"),
    Field("name", "string"),
    Field("number", "int32"),
    Field("count", "uint32", "1+"),
    Field("long", "int64"),
    Field("ratio", "float64"),
    Field("gone", "string", "0"),
    Field("rack", "string", "1+", nullable="1+"),
    Field("data", "bytes", nullable="0+"),
    Field("texts", "[]string"),
    Field("inner", "Inner", fields=INNER),
    Field("optional", "Inner", "2+", fields=INNER, nullable="2+"),
    Field("inners", "[]Inner", fields=INNER, nullable="1+"),
    Field("tagged", "int64", "2+", tag=0, default=-1),
    Field("taggedInners", "[]Inner", "2+", fields=INNER, tag=3),
    versions="0-2",
    flexible="2+",
)


def inner(random: Random, version: int) -> dict[str, Any]:
    epochs = [random.randrange(-(2**31), 2**31) for _ in range(random.randrange(3))]
    return {
        "id": TOPIC_ID,
        "epochs": None if version == 2 and random.random() < 0.3 else epochs,
        "flag": random.random() < 0.5,
    }


def everything(random: Random, version: int) -> dict[str, Any]:
    """Return values of each field of a version."""
    values: dict[str, Any] = {
        "small": random.randrange(-128, 128),
        "short": random.randrange(-(2**15), 2**15),
        "port": random.randrange(2**16),
        "name": "ключ" * random.randrange(60),
        "number": random.randrange(-(2**31), 2**31),
        "count": random.randrange(2**32),
        "long": random.randrange(-(2**63), 2**63),
        "ratio": random.random(),
        "gone": "",
        "rack": random.choice([None, "", "r"]),
        "data": random.choice([None, b"", b"\x00" * 200]),
        "texts": ["", "a", "b" * 130][: random.randrange(4)],
        "inner": inner(random, version),
        "optional": random.choice([None, inner(random, version)]),
        "inners": [inner(random, version) for _ in range(random.randrange(3))],
    }
    if version == 2:
        values |= {"tagged": random.randrange(2**63)} if random.random() < 0.5 else {}
        values |= {"taggedInners": [inner(random, 2)]} if random.random() < 0.5 else {}
    absent = {0: {"count", "rack", "optional"}, 1: {"gone", "optional"}, 2: {"gone"}}[version]
    return {name: value for name, value in values.items() if name not in absent}


@pytest.mark.parametrize(
    ("version", "data"),
    [
        # The length of the client id is an int16 even where the header is flexible (KIP-482).
        (2, b"\x00\x12\x00\x04\x00\x00\x00\x07\x00\x05adm-1\x00"),
        (1, b"\x00\x12\x00\x00\x00\x00\x00\x07\x00\x05adm-1"),
    ],
)
def test_request_headers_of_both_versions(version: int, data: bytes) -> None:
    values, end = HEADER.decode(data + b"body", version)
    assert (values["requestApiKey"], values["clientId"]) == (18, "adm-1")
    assert end == len(data)
    assert HEADER.encode(values, version) == data


@pytest.mark.parametrize("version", [0, 1, 2])
def test_decoding_inverts_encoding(version: int) -> None:
    random = Random(version)
    for _ in range(200):
        values = everything(random, version)
        data = EVERYTHING.encode(values, version)
        assert EVERYTHING.decode(data, version) == (values, len(data))
        assert EVERYTHING.decode(b"..." + data, version, 3) == (values, len(data) + 3)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_truncated_bytes_are_refused(version: int) -> None:
    random = Random(version)
    for _ in range(10):
        data = EVERYTHING.encode(everything(random, version), version)
        for size in range(len(data)):
            with pytest.raises(CorruptRecordError, match="malformed"):
                EVERYTHING.decode(data[:size], version)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_mutated_bytes_are_decoded_or_refused(version: int) -> None:
    random = Random(version)
    refused = 0
    for _ in range(3000):
        data = bytearray(EVERYTHING.encode(everything(random, version), version))
        for _ in range(random.randrange(1, 4)):
            data[random.randrange(len(data))] = random.randrange(256)
        try:
            values, end = EVERYTHING.decode(bytes(data), version)
        except CorruptRecordError:
            refused += 1
        else:
            assert end <= len(data)
            again = EVERYTHING.encode(values, version)
            # Of a NaN only the bytes are equal to itself.
            assert EVERYTHING.encode(EVERYTHING.decode(again, version).values, version) == again
    assert 0 < refused < 3000


@pytest.mark.parametrize("flexible", ["none", "0+"])
@pytest.mark.parametrize("kind", ["string", "bytes", "[]int64", "[]string", "[]Inner"])
def test_a_length_beyond_the_data_is_refused_before_anything_is_allocated(
    kind: str, flexible: str
) -> None:
    fields = INNER if kind == "[]Inner" else ()
    message = Message("Claim", Field("much", kind, fields=fields), flexible=flexible)
    claim = b"\xff\xff\xff\xff\x07" if flexible == "0+" else b"\x7f\xff\xff\xff"
    with pytest.raises(CorruptRecordError, match=r"Claim\.much: malformed.*at least"):
        message.decode(claim + bytes(64), 0)


def test_unknown_tagged_fields_are_skipped() -> None:
    data = bytearray(EVERYTHING.encode(everything(Random(5), 2) | {"tagged": 7}, 2))
    plain = HEADER.encode({"requestApiKey": 1, "requestApiVersion": 2, "correlationId": 3}, 2)
    known = HEADER.decode(plain, 2).values
    assert plain.endswith(b"\x00")
    longer = plain[:-1] + b"\x02\x05\x03abc\x06\x00"
    assert HEADER.decode(longer, 2) == (known, len(longer))
    assert EVERYTHING.decode(bytes(data), 2).values["tagged"] == 7


def test_a_tagged_field_of_another_size_is_refused() -> None:
    message = Message("Tags", Field("tagged", "int16", tag=0), flexible="0+")
    assert message.decode(b"\x01\x00\x02\x00\x07", 0).values == {"tagged": 7}
    for data in (b"\x01\x00\x01\x00\x07", b"\x01\x00\x03\x00\x07\x00"):
        with pytest.raises(CorruptRecordError, match=r"Tags\.tagged: malformed"):
            message.decode(data, 0)


def test_a_default_is_encoded_where_no_value_is_given_and_never_as_a_tagged_field() -> None:
    values = {"requestApiKey": 1, "requestApiVersion": 2, "correlationId": 3}
    assert HEADER.decode(HEADER.encode(values, 1), 1).values["clientId"] == ""
    message = Message("Tags", Field("tagged", "int16", tag=0, default=-1), flexible="0+")
    assert message.encode({}, 0) == message.encode({"tagged": -1}, 0) == b"\x00"


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"short": 2**15}, r"Everything\.short"),
        ({"number": "1"}, r"Everything\.number"),
        ({"name": None}, r"Everything\.name: must not be null"),
        ({"name": b"bytes"}, r"Everything\.name: must be a string"),
        ({"name": "\ud800"}, r"Everything\.name: must be Unicode text"),
        ({"data": "text"}, r"Everything\.data: must be bytes"),
        ({"inner": {"id": "short", "epochs": [], "flag": True}}, r"inner\.id: not a uuid"),
        ({"inner": {"id": TOPIC_ID, "epochs": [2**40], "flag": True}}, r"inner\.epochs"),
        ({"inner": {"id": TOPIC_ID, "epochs": []}}, r"inner\.flag: value is missing"),
    ],
)
def test_values_outside_their_type_are_refused(wrong: dict[str, Any], what: str) -> None:
    with pytest.raises(InvalidRequestError, match=what):
        EVERYTHING.encode(everything(Random(1), 1) | wrong, 1)


def test_a_string_too_long_for_its_length_field_is_refused() -> None:
    values = everything(Random(1), 2) | {"name": "a" * 2**15, "gone": ""}
    assert EVERYTHING.decode(EVERYTHING.encode(values, 2), 2).values["name"] == values["name"]
    with pytest.raises(InvalidRequestError, match=r"Everything\.name"):
        EVERYTHING.encode(values, 0)


def test_unknown_versions_are_refused() -> None:
    assert not HEADER.has_version(3)
    with pytest.raises(CorruptRecordError, match=r"RequestHeader: unknown version.*1 to 2"):
        HEADER.decode(bytes(20), 3)
    with pytest.raises(InvalidRequestError, match="RequestHeader: unknown version"):
        HEADER.encode({}, 0)


@pytest.mark.parametrize(
    ("number", "data"),
    [(0, b"\x00"), (127, b"\x7f"), (128, b"\x80\x01"), (2**32 - 1, b"\xff\xff\xff\xff\x0f")],
)
def test_unsigned_varints(number: int, data: bytes) -> None:
    out = bytearray()
    write_unsigned_varint(out, number)
    assert out == data
    assert read_unsigned_varint(data, 0, len(data)) == (number, len(data))
    with pytest.raises(CorruptRecordError, match="unsigned varint"):
        read_unsigned_varint(data, 0, len(data) - 1)
