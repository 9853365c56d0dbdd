"""Groups of Protobuf, of proto2 and of editions, compared with google.protobuf."""

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from tests.decoding.test_protobuf_values import (
    MANY,
    NUMBERS,
    TEXT,
    decode,
    decoder_of,
    kind_of,
    ordered,
)
from tests.twins.protobuf import plain_decode_protobuf

OLD = """
syntax = "proto2";
package g;
message Outer {
  optional int32 id = 1;
  optional group Note = 2 {
    optional string text = 3;
    repeated group Part = 4 { optional int64 n = 5; repeated int32 many = 6 [packed = true]; }
    optional group Note2 = 16 { optional string text = 3 [default = "none"]; }
  }
  repeated group Line = 1000 { optional string sku = 1; optional Outer back = 2; }
  oneof one { group Left = 20 { optional int32 x = 1; } string right = 21; }
  optional Tree tree = 30;
  optional int32 last = 31;
}
message Tree { optional int32 v = 1; optional group Inner = 2 { optional Tree deeper = 3; } }
"""
EDITION = """
edition = "2023";
package g;
import "google/protobuf/timestamp.proto";
option features.message_encoding = DELIMITED;
message Outer {
  int32 id = 1;
  Inner inner = 2;
  repeated Inner many = 3;
  map<string, Inner> by_name = 4;
  google.protobuf.Timestamp at = 5;
  Inner prefixed = 6 [features.message_encoding = LENGTH_PREFIXED];
  Outer self = 7;
}
message Inner { string text = 1; Deep deep = 2; }
message Deep { repeated sint32 z = 1; }
"""
PART = st.fixed_dictionaries(
    {}, optional={"n": NUMBERS["i64"], "many": st.lists(NUMBERS["i32"], max_size=3)}
)
NOTE = st.fixed_dictionaries(
    {},
    optional={
        "text": TEXT,
        "part": st.lists(PART, max_size=3),
        "note2": st.fixed_dictionaries({}, optional={"text": TEXT}),
    },
)
OUTERS = st.fixed_dictionaries(
    {},
    optional={
        "id": NUMBERS["i32"],
        "note": NOTE,
        "line": st.lists(st.fixed_dictionaries({"sku": TEXT}), max_size=3),
        "left": st.fixed_dictionaries({"x": NUMBERS["i32"]}),
        "tree": st.fixed_dictionaries({"v": NUMBERS["i32"]}),
        "last": NUMBERS["i32"],
    },
)
DEEP = st.fixed_dictionaries({"z": st.lists(NUMBERS["i32"], max_size=3)})
INNER = st.fixed_dictionaries({}, optional={"text": TEXT, "deep": DEEP})
EDITIONS = st.fixed_dictionaries(
    {},
    optional={
        "id": NUMBERS["i32"],
        "inner": INNER,
        "many": st.lists(INNER, max_size=3),
        "by_name": st.dictionaries(TEXT, INNER, max_size=2),
        "at": st.fixed_dictionaries({"seconds": st.integers(0, 10**9)}),
        "prefixed": INNER,
        "self": st.fixed_dictionaries({"id": NUMBERS["i32"], "inner": INNER}),
    },
)


@pytest.mark.parametrize("schema", [OLD, EDITION])
@MANY
@given(data=st.data())
def test_groups_are_messages(schema: str, data: st.DataObject) -> None:
    """Also merged ones, cut off and mutated ones."""
    kind = kind_of(schema, "g.Outer")
    outers = OUTERS if schema is OLD else EDITIONS
    one, other = (kind(**data.draw(outers)).SerializeToString() for _ in range(2))
    mutated = bytearray(one + other)
    if mutated:
        mutated[data.draw(st.integers(0, len(mutated) - 1))] = data.draw(st.integers(0, 255))
    cut = one[: data.draw(st.integers(0, len(one)))]
    values = [one, other, cut, bytes(mutated)]
    decoded = decode([*values, one], decoder_of(schema))
    rows, errors = decoded.values.to_pylist(), decoded.errors.to_pylist()
    for value, row, error in zip(values, rows, errors, strict=False):
        try:
            expected = plain_decode_protobuf(kind, value)
        except (DecodeError, OverflowError):
            expected = None
        assert (row is None) == (error is not None)
        assert value not in (one, other) or error is None
        if expected is None:
            assert value not in (one, other)
        elif row is not None and value != bytes(mutated):
            assert ordered(row) == ordered(expected)
        else:
            assert error is None or any(
                each in error for each in ("oneof", "out of range", "UTF-8")
            )
    assert ordered(rows[-1]) == ordered(rows[0])


def tag(number: int, wire: int) -> bytes:
    value, found = number << 3 | wire, bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def group(number: int, *content: bytes) -> bytes:
    return tag(number, 3) + b"".join(content) + tag(number, 4)


def test_bytes_of_groups() -> None:
    """A group that is cut off, ends as another one, has another wire type, or comes twice."""
    kind = kind_of(OLD, "g.Outer")
    text, size_of = b"\x1a\x01a", b"\x12\x03" + b"\x1a\x01a"
    last = b"\xf8\x01\x07"
    cases: list[tuple[bytes, str | None]] = [
        (group(2, text) + last, None),
        (group(2, text) + group(2, group(4, b"\x28\x05")) + last, None),
        (group(2, group(4), group(4, b"\x32\x02\x01\x02")) + last, None),
        (size_of + last, None),  # a message with this number is another field, an unknown one
        (group(30, b"\x08\x01") + last, None),  # and so is a group of a message's number
        (group(2, group(77, text, group(78)), text) + last, None),  # unknown ones inside
        (group(20, b"\x08\x01") + last, None),
        (tag(2, 3) + text, "a group does not end"),
        (tag(2, 3) + text + tag(4, 4), "a group does not end"),
        (tag(2, 4), "a group does not end"),
        (group(2, tag(77, 3)), "a group does not end"),
        (group(2, b"\x1a\x7f"), "ends inside"),
        (group(2, b"\x1a\x01\xff"), "not UTF-8"),
        (tag(30, 2) + b"\x01" + group(2) + last, "a group does not end"),  # beyond its message
        (tag(30, 2) + b"\x02" + group(2) + last, None),
        (tag(30, 2) + b"\x03" + group(2, b"\x1a\x00"), "a group does not end"),
    ]
    decoded = decode([value for value, _ in cases], decoder_of(OLD))
    for (value, reason), row, error in zip(
        cases, decoded.values.to_pylist(), decoded.errors.to_pylist(), strict=True
    ):
        if reason is None:
            assert error is None, (value, error)
            assert row == plain_decode_protobuf(kind, value)
        else:
            assert reason in error, (value, error)


def test_a_message_inside_itself_stays_as_its_bytes() -> None:
    kind = kind_of(EDITION, "g.Outer")
    inner = kind(id=1, self=kind(id=2, inner={"text": "x"}, self=kind(id=3)))
    value = inner.SerializeToString()
    row = decode([value], decoder_of(EDITION)).values[0].as_py()
    assert row == plain_decode_protobuf(kind, value)
    assert row["self"] == inner.self.SerializeToString()
    assert kind.FromString(row["self"]).self.id == 3


@pytest.mark.parametrize("known", [False, True])
def test_depth_is_that_of_googles_library(known: bool) -> None:
    """Groups within groups, below the value and below messages of it."""
    kind = kind_of(OLD, "g.Outer")
    for depth in (1, 90, 98, 99, 100, 101, 150, 100_000):
        value = tag(77, 3) * depth + tag(77, 4) * depth
        value = group(2, group(16, value)) if known else value
        decoded = decode([value, b"\x08\x01"], decoder_of(OLD))
        try:
            kind.FromString(value)
            assert decoded.errors[0].as_py() is None, depth
        except DecodeError:
            assert "100 deep" in decoded.errors[0].as_py(), depth
        assert decoded.values[1].as_py()["id"] == 1
