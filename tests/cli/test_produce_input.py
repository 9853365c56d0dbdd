"""What `produce` makes of its input, and what it refuses."""

import io
import json
import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.cli import produce_input
from streamlog.cli.produce_input import (
    BadLineError,
    InputChunk,
    LineParser,
    NdjsonParser,
    read_chunks,
)
from streamlog.errors import MessageTooLargeError
from streamlog.records.record import Header

NOW = 1_700_000_000_000


def now_ms() -> int:
    return NOW


def parse_lines(
    data: bytes, separator: bytes | None = None, encoding: str = "utf8"
) -> list[tuple[bytes | None, bytes | None]]:
    columns = LineParser(separator, encoding, now_ms).parse(InputChunk(data, 1)).columns
    values = list(columns.value or [])
    keys = [None] * len(values) if columns.key is None else list(columns.key)
    assert columns.timestamp.tolist() == [NOW] * len(values)
    return list(zip(keys, values, strict=True))


LINES = st.lists(
    st.binary(max_size=12).map(lambda b: b.replace(b"\n", b"")), min_size=1, max_size=9
)


@given(LINES, st.booleans())
def test_lines_are_values(lines: list[bytes], has_last_newline: bool) -> None:
    data = b"\n".join(lines) + b"\n"
    if not has_last_newline and lines[-1]:
        data = data[:-1]
    assert parse_lines(data) == [(None, line) for line in lines]


@given(LINES, st.sampled_from([b":", b"::", b"\t", b"aba", "→".encode()]))
def test_a_line_is_split_at_its_first_separator(lines: list[bytes], separator: bytes) -> None:
    keyed = [line + separator + line[::-1] for line in lines]
    expected = [tuple(line.split(separator, 1)) for line in keyed]
    assert parse_lines(b"\n".join(keyed) + b"\n", separator) == expected


def test_a_line_without_separator_is_refused_by_number_and_those_before_are_kept() -> None:
    parser = LineParser(b":", "utf8", now_ms)
    with pytest.raises(BadLineError, match="line 12: no key separator") as caught:
        parser.parse(InputChunk(b"a:1\nb:2\nnothing\nc:3\n", 10))
    before = caught.value.before
    assert before is not None
    assert list(before.columns.value or []) == [b"1", b"2"]


def test_a_separator_does_not_reach_over_the_end_of_a_line() -> None:
    with pytest.raises(BadLineError, match="line 1: "):
        parse_lines(b"a:\n:b\n", b"::")


@pytest.mark.parametrize(("encoding", "text"), [("base64", b"/wA="), ("hex", b"ff00")])
def test_encoded_lines_are_decoded(encoding: str, text: bytes) -> None:
    assert parse_lines(text + b":" + text + b"\n", b":", encoding) == [(b"\xff\0", b"\xff\0")]


@pytest.mark.parametrize(
    ("encoding", "text"), [("base64", b"/w=A"), ("hex", b"ff0"), ("hex", b"zz")]
)
def test_lines_that_are_not_in_the_encoding_are_refused(encoding: str, text: bytes) -> None:
    with pytest.raises(BadLineError, match="line 2: invalid encoding"):
        parse_lines(b"ff00\n" + text + b"\n", None, encoding)


# ---- ndjson -----------------------------------------------------------------------------------
def parse_json(*lines: str, encoding: str = "utf8") -> NdjsonParser:
    parser = NdjsonParser(encoding, now_ms)
    return parser.parse(InputChunk("\n".join(lines).encode() + b"\n", 1))


def test_an_object_with_all_fields_keeps_them() -> None:
    found = parse_json(
        '{"topic":"x","partition":2,"offset":9,"timestamp":5,"timestampType":"CreateTime",'
        '"key":"k","valueBase64":"/w==","headers":[{"key":"a","value":null},{"key":"a","value":""}]}'
    )
    assert found.partition is not None
    assert found.partition.tolist() == [2]
    assert found.columns.timestamp.tolist() == [5]
    assert list(found.columns.key or []) == [b"k"]
    assert list(found.columns.value or []) == [b"\xff"]
    assert list(found.columns.headers or []) == [(Header("a", None), Header("a", b""))]


def test_absent_fields_are_null_now_and_anywhere() -> None:
    found = parse_json("{}", "", '  {"value": ""}  ')
    assert found.partition is not None
    assert found.partition.tolist() == [-1, -1]
    assert found.columns.timestamp.tolist() == [NOW, NOW]
    assert list(found.columns.key or []) == [None, None]
    assert list(found.columns.value or []) == [None, b""]
    assert found.columns.headers is None


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("nope", "invalid JSON"),
        ('{"a":1', "invalid JSON"),
        ("[1]", "not a JSON object"),
        ('{"value":"a"}{"value":"b"}', "text after the JSON"),
        ('{"vaule":"a"}', "unknown field.*value"),
        ('{"value":1}', "value is not "),
        ('{"value":{"a":1}}', "value is not "),
        ('{"key":"a","keyBase64":"YQ=="}', "both key and keyBase64"),
        ('{"keyBase64":"?"}', "keyBase64 cannot be decoded"),
        ('{"value":"\\ud800"}', "value is not "),
        ('{"partition":-1}', "invalid value for partition"),
        ('{"partition":true}', "invalid value for partition"),
        ('{"partition":99999999999}', "invalid value for partition"),
        ('{"timestamp":-2}', "invalid value for timestamp"),
        ('{"timestamp":1.5}', "invalid value for timestamp"),
        ('{"headers":{"a":"b"}}', "headers is not a list"),
        ('{"headers":[{"value":"b"}]}', "header without a key"),
        ('{"headers":[{"key":"a","vlaue":"b"}]}', "unknown field"),
        ('{"headers":[{"key":"\\ud800"}]}', "header key is not valid Unicode"),
        ("[" * 100_000, "invalid JSON"),
    ],
)
def test_invalid_records_are_refused_by_number(line: str, what: str) -> None:
    with pytest.raises(BadLineError, match=f"line 3: {what}") as caught:
        parse_json('{"value":"good"}', "", line)
    assert caught.value.before is not None
    assert list(caught.value.before.columns.value or []) == [b"good"]


@pytest.mark.parametrize("encoding", ["base64", "hex"])
def test_encoded_fields_are_decoded(encoding: str) -> None:
    text = {"base64": "/wA=", "hex": "ff00"}[encoding]
    line = json.dumps({"key": text, "value": text, "headers": [{"key": "h", "value": text}]})
    found = parse_json(line, encoding=encoding).columns
    assert list(found.key or []) == list(found.value or []) == [b"\xff\0"]
    assert list(found.headers or []) == [(Header("h", b"\xff\0"),)]


# ---- chunks -----------------------------------------------------------------------------------
def test_chunks_are_whole_lines_with_their_numbers() -> None:
    lines = [b"x" * 1000 + b"%d" % i for i in range(10_000)]
    chunks = list(read_chunks(io.BytesIO(b"\n".join(lines))))
    assert len(chunks) > 1
    assert b"".join(chunk.data for chunk in chunks) == b"\n".join(lines)
    for chunk in chunks:
        assert chunk.data.startswith(lines[chunk.first_line - 1])


def seconds_for_a_line_of(size: int) -> float:
    """Return the least time of three in which a line is read, in seconds of this process."""
    line = b"x" * size
    times = []
    for _ in range(3):
        stream = io.BytesIO(b"short\n" + line + b"\nend")
        start = time.process_time()
        chunks = list(read_chunks(stream))
        times.append(time.process_time() - start)
        assert [len(chunk.data) for chunk in chunks] in ([size + 7, 3], [6, size + 1, 3])
    return min(times)


def test_a_line_eight_times_as_long_takes_less_than_thirty_times_as_long() -> None:
    assert seconds_for_a_line_of(128 << 20) < 30 * seconds_for_a_line_of(16 << 20)


def test_pieces_of_a_line_without_an_end_are_not_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce_input, "LINE_SIZE_MAX", 10 << 20)
    with pytest.raises(MessageTooLargeError, match="line 2 of the input: line too long"):
        list(read_chunks(io.BytesIO(b"one\n" + b"x" * (20 << 20))))


def test_lines_are_handed_over_when_the_input_pauses() -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as stream, os.fdopen(writer, "wb", buffering=0) as feed:
        chunks = read_chunks(stream)
        feed.write(b"one\ntwo\nthr")
        assert next(chunks) == InputChunk(b"one\ntwo\n", 1)
        feed.write(b"ee\n")
        assert next(chunks) == InputChunk(b"three\n", 3)
        feed.write(b"end")
        feed.close()
        assert next(chunks) == InputChunk(b"end", 4)
        assert list(chunks) == []
