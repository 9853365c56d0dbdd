"""The fetch answers of Kafka 0.6 and 0.7: `MessageSetSend` and `MultiMessageSetSend`.

    message         int32 size, int8 magic = 1, int8 attributes = 0, uint32 CRC-32, then the value
    MessageSetSend  int32 size, int16 error, then messages        the answer to a fetch
    MultiMessage-   int32 size, int16 error = 0, then one         the answer to a multi-fetch
      SetSend       MessageSetSend per fetch, in order

A size counts what follows it, so the error belongs to it. The checksum is that of the value alone.
Messages have neither keys nor offsets nor timestamps: an offset was a position in the log, and a
consumer adds the sizes up. Responses had no correlation id; they came in the order of the requests.

No server answers like this any more, nor does the gateway: Kafka 4 begins with version 4 of Fetch.
The encoder is for readers of old captures, and for tests of clients that were never upgraded.

Source: kafka.server.MessageSetSend, kafka.server.MultiMessageSetSend, kafka.message.Message and
kafka.common.ErrorMapping of Kafka 0.7.
"""

import struct
import zlib
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Final

__all__ = ["MessageSetError", "encode_message", "encode_message_set", "encode_message_sets"]

_MAGIC: Final = 1
_NO_COMPRESSION: Final = 0
_MESSAGE: Final = struct.Struct(">iBBI")  # size, magic, attributes, CRC-32
_MESSAGE_SIZE: Final = _MESSAGE.size - 4  # what the size counts of it
_SEND: Final = struct.Struct(">ih")  # size, error
_SEND_SIZE: Final = _SEND.size - 4


class MessageSetError(IntEnum):
    """The error codes of Kafka 0.7."""

    UNKNOWN = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    INVALID_MESSAGE = 2
    WRONG_PARTITION = 3
    INVALID_FETCH_SIZE = 4


def encode_message(value: bytes) -> bytes:
    """Return an uncompressed message."""
    size = _MESSAGE_SIZE + len(value)
    return _MESSAGE.pack(size, _MAGIC, _NO_COMPRESSION, zlib.crc32(value)) + value


def encode_message_set(
    values: Iterable[bytes], error: MessageSetError = MessageSetError.NONE
) -> bytes:
    """Return the answer to a fetch, `MessageSetSend`.

    Args:
        values: The values of the messages.
        error: The error, with which there are no messages.
    """
    messages = b"".join(map(encode_message, values))
    return _SEND.pack(_SEND_SIZE + len(messages), error) + messages


def encode_message_sets(sets: Sequence[bytes]) -> bytes:
    """Return the answer to a multi-fetch, `MultiMessageSetSend`.

    Args:
        sets: The answers to its fetches, as `encode_message_set` returns them.
    """
    joined = b"".join(sets)
    return _SEND.pack(_SEND_SIZE + len(joined), MessageSetError.NONE) + joined
