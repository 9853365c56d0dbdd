"""Recovery of segments of formats v0 and v1: the same table, the same verdicts."""

import pytest

from streamlog.records.record import CompressionType, Record
from tests.support.batches import message_set
from tests.support.recovery import (
    BASE,
    LOG,
    NEXT,
    WHOLE,
    changed,
    kept,
    log_with,
    recover,
    refused,
)
from tests.support.segments import NOW_MS, read_bytes

CODECS = [CompressionType.NONE, CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4]
MESSAGES = 12


def message(at: int, magic: int, codec: CompressionType = CompressionType.NONE) -> bytes:
    """Return the message at offset `at`; a compressed one also contains the previous record."""
    count = 1 if codec is CompressionType.NONE else 2
    records = [Record(b"key", b"value %d" % at, (), NOW_MS + at)] * count
    return message_set(magic, records, base_offset=at - count + 1, compression=codec)


def segment(magic: int, codec: CompressionType) -> list[bytes]:
    step = 1 if codec is CompressionType.NONE else 2
    return [message(BASE + step * (at + 1) - 1, magic, codec) for at in range(MESSAGES)]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_a_sound_segment_is_left_alone(magic: int, codec: CompressionType) -> None:
    parts = segment(magic, codec)
    fs = log_with(b"".join(parts))
    report = recover(fs)
    assert (report.case, report.batch_count, report.cut_size) == ("@A", MESSAGES, 0)
    assert report.next_offset == BASE + MESSAGES * (1 if codec is CompressionType.NONE else 2)
    assert read_bytes(fs, LOG) == b"".join(parts)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_a_torn_tail_is_truncated_wherever_it_was_torn(magic: int, codec: CompressionType) -> None:
    *parts, last = segment(magic, codec)
    whole = b"".join(parts)
    for size in range(1, len(last), 7):
        fs = log_with(whole + last[:size])
        report = recover(fs)
        assert (report.batch_count, report.cut_size) == (MESSAGES - 1, size)
        assert kept(fs, report) == last[:size].rstrip(b"\0")
        assert read_bytes(fs, LOG) == whole


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_damage_before_sound_messages_is_refused(magic: int, codec: CompressionType) -> None:
    parts = segment(magic, codec)
    whole = b"".join(parts)
    start = sum(map(len, parts[:5]))
    for place in range(8, len(parts[5])):
        damaged = changed(whole, start + place, bytes((whole[start + place] ^ 0x41,)))
        assert refused(log_with(damaged)) in ("@J", "@L", "@O")
        assert refused(log_with(damaged), durable=NEXT) in ("@J", "@K", "@N")


@pytest.mark.parametrize("magic", [0, 1])
def test_a_flipped_byte_in_the_last_message_is_a_torn_tail_above_the_mark(magic: int) -> None:
    parts = segment(magic, CompressionType.NONE)
    whole = b"".join(parts)
    damaged = changed(whole, len(whole) - 3, b"\xff")
    assert recover(log_with(damaged)).case == "@M"
    assert refused(log_with(damaged), durable=BASE + MESSAGES) == "@K"


@pytest.mark.parametrize("magic", [0, 1])
def test_decreasing_offsets_are_refused(magic: int) -> None:
    parts = segment(magic, CompressionType.NONE)
    other = message(BASE + 20, magic)
    assert refused(log_with(b"".join([*parts[:5], other, *parts[5:]]))) == "@F"


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_after_damaged_batches_and_batches_after_messages_are_sound(
    magic: int,
) -> None:
    behind = message(NEXT, magic)
    damaged = changed(WHOLE, len(WHOLE) - 3, b"\xff")
    assert refused(log_with(damaged + behind)) == "@L"
    first = changed(message(BASE - 1, magic), 20, b"\xff")
    assert refused(log_with(first + WHOLE)) == "@L"
