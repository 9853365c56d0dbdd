"""The fetch answers of Kafka 0.7, byte by byte and as its consumer took them apart."""

import zlib
from collections.abc import Iterator

import pytest

from streamlog.protocol.message_sets import (
    MessageSetError,
    encode_message,
    encode_message_set,
    encode_message_sets,
)


def test_a_message_byte_by_byte() -> None:
    # CRC-32 of "123456789" is the check value of the algorithm's catalogue.
    assert encode_message(b"123456789").hex(" ") == (
        "00 00 00 0f 01 00 cb f4 39 26 31 32 33 34 35 36 37 38 39"
    )
    assert encode_message(b"").hex(" ") == "00 00 00 06 01 00 00 00 00 00"


def test_an_answer_byte_by_byte() -> None:
    assert encode_message_set([]).hex(" ") == "00 00 00 02 00 00"
    refused = encode_message_set([], MessageSetError.OFFSET_OUT_OF_RANGE)
    assert refused.hex(" ") == "00 00 00 02 00 01"
    assert encode_message_set([], MessageSetError.UNKNOWN).hex(" ") == "00 00 00 02 ff ff"
    one = encode_message_set([b""])
    assert one.hex(" ") == "00 00 00 0c 00 00 00 00 00 06 01 00 00 00 00 00"
    both = encode_message_sets([one, refused])
    assert both.hex(" ") == f"00 00 00 18 00 00 {one.hex(' ')} {refused.hex(' ')}"
    assert encode_message_sets([]).hex(" ") == "00 00 00 02 00 00"


def _sets(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield error and messages of each set (kafka.api.MultiFetchResponse of 0.7)."""
    while data:
        size = int.from_bytes(data[:4], "big")
        yield int.from_bytes(data[4:6], "big", signed=True), data[6 : 4 + size]
        data = data[4 + size :]


def _values(messages: bytes) -> Iterator[bytes]:
    """Yield the values of messages (kafka.message.ByteBufferMessageSet of 0.7)."""
    while messages:
        size = int.from_bytes(messages[:4], "big")
        message, messages = messages[4 : 4 + size], messages[4 + size :]
        assert message[:2] == b"\1\0"
        assert int.from_bytes(message[2:6], "big") == zlib.crc32(message[6:])
        yield message[6:]


@pytest.mark.parametrize("values", [[], [b""], [b"one", b"", b"three" * 10_000]])
def test_a_consumer_takes_an_answer_apart(values: list[bytes]) -> None:
    refused = MessageSetError.WRONG_PARTITION
    sent = [encode_message_set(values), encode_message_set([], refused), encode_message_set(values)]
    ((code, inner),) = _sets(encode_message_sets(sent))
    assert code == 0
    found = [(each, list(_values(messages))) for each, messages in _sets(inner)]
    assert found == [(0, values), (refused, []), (0, values)]
