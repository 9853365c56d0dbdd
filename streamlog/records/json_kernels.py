"""Compiled loops that write records as JSON into one array of bytes.

Every writer takes the output and a position in it and returns the position after the written
bytes. The caller allocates for the worst case, six bytes per byte of text. Columns are triples
(offsets, data, validity) in Arrow's layout; validity is empty if nothing is null. The twin in
plain Python is `tests.twins.json_records`.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamlog.binary.arrays import WORD_SIZE
from streamlog.binary.jit import copy_bytes, inlined, kernel, load_word

UTF8: Final = 0
BASE64: Final = 1
HEX: Final = 2
WRITTEN: Final = 3  # no encoding: a field that is JSON already, with its name
Bytes = NDArray[np.uint8]
Column = tuple[NDArray[np.int32], Bytes, Bytes]


def _literal(text: str) -> Bytes:
    return np.frombuffer(text.encode("ascii"), np.uint8).copy()


# A word has eight bytes. As in C's classic strlen: x - 0x01… has a byte's highest bit set where the
# byte of x is 0. A borrow or carry only reaches bytes above such a byte, so the lowest is exact.
_ONES: Final = 0x0101_0101_0101_0101
_HIGH_BITS: Final = -0x7F7F_7F7F_7F7F_7F80
_SPACES: Final = 0x2020_2020_2020_2020
_QUOTES: Final = 0x2222_2222_2222_2222
_BACKSLASHES: Final = 0x5C5C_5C5C_5C5C_5C5C
_MIN_INT64: Final = -(2**63)
_MIN_TEXT = _literal(str(_MIN_INT64))
_HEX_DIGITS = _literal("0123456789abcdef")
_BASE64_DIGITS = _literal("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
_TIMESTAMP = _literal(',"timestamp":')
_NO_TIMESTAMP_TYPE = _literal(',"timestampType":"NoTimestampType"')
_CREATE_TIME = _literal(',"timestampType":"CreateTime"')
_LOG_APPEND_TIME = _literal(',"timestampType":"LogAppendTime"')
_KEY = _literal(',"key":')
_KEY_BASE64 = _literal(',"keyBase64":')
_VALUE = _literal(',"value":')
_VALUE_BASE64 = _literal(',"valueBase64":')
_HEADERS = _literal(',"headers":')
_HEADER_KEY = _literal('{"key":')
_NULL = _literal("null")


@kernel
def write_bytes(out: Bytes, at: int, source: Bytes) -> int:
    """Copy all of `source`."""
    return write_range(out, at, source, 0, source.size)


@kernel
def write_range(out: Bytes, at: int, source: Bytes, start: int, end: int) -> int:
    """Copy the bytes from `start` to `end`."""
    if end > start:
        out[at + end - start - 1] = source[end - 1]  # raises if a range is too long
        copy_bytes(out, at, source, start, end - start)
    return at + end - start


@kernel
def write_int(out: Bytes, at: int, value: int) -> int:
    """Write `value` in decimal."""
    if value == _MIN_INT64:
        return write_bytes(out, at, _MIN_TEXT)
    if value < 0:
        out[at] = 45
        at += 1
        value = -value
    digits = 1
    rest = value // 10
    while rest > 0:
        digits += 1
        rest //= 10
    for i in range(digits):
        out[at + digits - 1 - i] = 48 + value % 10
        value //= 10
    return at + digits


@kernel
def utf8_size(source: Bytes, at: int, end: int) -> int:
    """Return the size of the UTF-8 character at `at` (1 to 4), or 0 if it is invalid."""
    first = source[at]
    if first < 0x80:
        return 1
    if first < 0xC2 or first > 0xF4:
        return 0
    size = 2 if first < 0xE0 else 3 if first < 0xF0 else 4
    if size > end - at:
        return 0
    second = source[at + 1]
    low, high = 0x80, 0xBF
    if first == 0xE0:
        low = 0xA0
    elif first == 0xED:  # no surrogates
        high = 0x9F
    elif first == 0xF0:
        low = 0x90
    elif first == 0xF4:  # nothing above U+10FFFF
        high = 0x8F
    if second < low or second > high:
        return 0
    for i in range(2, size):
        if source[at + i] & 0xC0 != 0x80:
            return 0
    return size


@kernel
def is_utf8(source: Bytes, start: int, end: int) -> int:
    """Return 1 if the bytes from `start` to `end` are valid UTF-8, else 0."""
    if end > start and source[end - 1] >= 0xC0:  # raises if the range is too long
        return 0
    at = start
    while at < end:
        if end - at >= WORD_SIZE and load_word(source, at) & _HIGH_BITS == 0:
            at += WORD_SIZE
            continue
        size = utf8_size(source, at, end)
        if size == 0:
            return 0
        at += size
    return 1


@kernel
def write_escape(out: Bytes, at: int, code: int) -> int:
    """Write the character `code` (below 65536) as an escape, in its short form if it has one."""
    out[at] = 92
    short = 0
    if code == 34 or code == 92:
        short = code
    elif code == 8:
        short = 98
    elif code == 9:
        short = 116
    elif code == 10:
        short = 110
    elif code == 12:
        short = 102
    elif code == 13:
        short = 114
    if short != 0:
        out[at + 1] = short
        return at + 2
    out[at + 1] = 117
    for i in range(4):
        out[at + 2 + i] = _HEX_DIGITS[(code >> (12 - 4 * i)) & 0xF]
    return at + 6


@inlined
def not_plain(word: int) -> int:
    """Return the highest bit of each byte that a JSON string may not keep; the lowest is exact."""
    quotes, backslashes = word ^ _QUOTES, word ^ _BACKSLASHES
    found = ((word - _SPACES) & ~word) | ((quotes - _ONES) & ~quotes)
    found |= ((backslashes - _ONES) & ~backslashes) | word | (word + _ONES)
    return found & _HIGH_BITS


@inlined
def bytes_below(bits: int) -> int:
    """Return the number of bytes of a word below the lowest of such highest bits."""
    lowest = bits & -bits
    return ((((lowest - 1) & _ONES) * _ONES) >> 56 & 0xFF) - 1


@kernel
def write_text(out: Bytes, at: int, source: Bytes, start: int, end: int) -> int:
    """Write UTF-8 as a JSON string. Control characters (C1 too) and line separators are escaped."""
    out[at] = 34
    at += 1
    i = start
    if end > start:
        out[at + end - start - 1] = source[end - 1]  # raises if a range is too long
    while i < end:
        if end - i >= WORD_SIZE and out.size - at >= WORD_SIZE:
            copy_bytes(out, at, source, i, WORD_SIZE)
            found = not_plain(load_word(source, i))
            plain = WORD_SIZE if found == 0 else bytes_below(found)
            at += plain
            i += plain
            if found == 0:
                continue
        first = source[i]
        if first < 0x20 or first == 34 or first == 92 or first == 0x7F:
            at = write_escape(out, at, first)
            i += 1
        elif first == 0xC2 and i + 1 < end and source[i + 1] < 0xA0:
            at = write_escape(out, at, source[i + 1])
            i += 2
        elif (
            first == 0xE2 and i + 2 < end and source[i + 1] == 0x80 and source[i + 2] & 0xFE == 0xA8
        ):
            at = write_escape(out, at, 0x2000 + source[i + 2] - 0x80)
            i += 3
        else:
            out[at] = first
            at += 1
            i += 1
            while i < end and source[i] & 0xC0 == 0x80:  # the rest of a character
                out[at] = source[i]
                at += 1
                i += 1
    out[at] = 34
    return at + 1


@kernel
def write_base64_digits(out: Bytes, at: int, source: Bytes, start: int, end: int) -> int:
    """Write bytes in base64, padded."""
    for i in range(start, end, 3):
        left = end - i
        bits = np.int64(source[i]) << 16
        if left > 1:
            bits |= np.int64(source[i + 1]) << 8
        if left > 2:
            bits |= np.int64(source[i + 2])
        out[at] = _BASE64_DIGITS[bits >> 18]
        out[at + 1] = _BASE64_DIGITS[(bits >> 12) & 63]
        out[at + 2] = _BASE64_DIGITS[(bits >> 6) & 63] if left > 1 else 61
        out[at + 3] = _BASE64_DIGITS[bits & 63] if left > 2 else 61
        at += 4
    return at


@kernel
def write_base64(out: Bytes, at: int, source: Bytes, start: int, end: int) -> int:
    """Write bytes as a JSON string in base64, padded."""
    out[at] = 34
    at = write_base64_digits(out, at + 1, source, start, end)
    out[at] = 34
    return at + 1


@kernel
def write_hex_digits(out: Bytes, at: int, source: Bytes, start: int, end: int) -> int:
    """Write bytes as hexadecimal digits."""
    for i in range(start, end):
        out[at] = _HEX_DIGITS[source[i] >> 4]
        out[at + 1] = _HEX_DIGITS[source[i] & 0xF]
        at += 2
    return at


@kernel
def write_hex(out: Bytes, at: int, source: Bytes, start: int, end: int) -> int:
    """Write bytes as a JSON string of hexadecimal digits."""
    out[at] = 34
    at = write_hex_digits(out, at + 1, source, start, end)
    out[at] = 34
    return at + 1


@kernel
def write_field(
    out: Bytes, at: int, column: Column, row: int, encoding: int, name: Bytes, name_base64: Bytes
) -> int:
    """Write a name and the value of a row: null, or a string in `encoding`.

    With UTF8, an invalid value is written as `name_base64` in base64. With WRITTEN, the value is
    all there is to write.
    """
    offsets, data, validity = column
    if encoding == WRITTEN:
        return write_range(out, at, data, offsets[row], offsets[row + 1])
    if validity.size > 0 and (validity[row >> 3] >> (row & 7)) & 1 == 0:
        return write_bytes(out, write_bytes(out, at, name), _NULL)
    start, end = offsets[row], offsets[row + 1]
    if encoding == BASE64:
        return write_base64(out, write_bytes(out, at, name), data, start, end)
    if encoding == HEX:
        return write_hex(out, write_bytes(out, at, name), data, start, end)
    if is_utf8(data, start, end):
        return write_text(out, write_bytes(out, at, name), data, start, end)
    return write_base64(out, write_bytes(out, at, name_base64), data, start, end)


@kernel
def write_headers(
    out: Bytes, at: int, keys: Column, values: Column, start: int, end: int, encoding: int
) -> int:
    """Write the headers `start` to `end` as a JSON list, in order."""
    out[at] = 91
    at += 1
    for i in range(start, end):
        if i > start:
            out[at] = 44
            at += 1
        at = write_bytes(out, at, _HEADER_KEY)
        at = write_text(out, at, keys[1], keys[0][i], keys[0][i + 1])
        at = write_field(out, at, values, i, encoding, _VALUE, _VALUE_BASE64)
        out[at] = 125
        at += 1
    out[at] = 93
    return at + 1


@kernel
def format_records(
    out: Bytes,
    frame: tuple[Bytes, Bytes],
    fixed: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]],
    fields: tuple[Column, Column],
    headers: tuple[NDArray[np.int32], Column, Column],
    encodings: tuple[int, int, int],
    rest: Column,
) -> int:
    """Write records as JSON objects.

    Args:
        out: uint8[m], large enough for the worst case.
        frame: Bytes before a record's offset, and bytes after its closing brace.
        fixed: Offset, timestamp and timestamp type of n records.
        fields: Keys and values.
        headers: int32[n + 1] runs of headers, their keys, their values.
        encodings: UTF8, BASE64 or HEX of keys, values and header values; WRITTEN for keys or values
            that are JSON with the comma and the name before it.
        rest: Bytes before the closing brace of each record, or no rows at all.

    Returns:
        The number of bytes written.
    """
    offset, timestamp, timestamp_type = fixed
    has_rest = rest[0].size > 1
    at = 0
    for row in range(offset.size):
        at = write_bytes(out, at, frame[0])
        at = write_int(out, at, offset[row])
        at = write_int(out, write_bytes(out, at, _TIMESTAMP), timestamp[row])
        kind = timestamp_type[row]
        if kind == 0:
            at = write_bytes(out, at, _CREATE_TIME)
        elif kind == 1:
            at = write_bytes(out, at, _LOG_APPEND_TIME)
        else:
            at = write_bytes(out, at, _NO_TIMESTAMP_TYPE)
        at = write_field(out, at, fields[0], row, encodings[0], _KEY, _KEY_BASE64)
        at = write_field(out, at, fields[1], row, encodings[1], _VALUE, _VALUE_BASE64)
        at = write_bytes(out, at, _HEADERS)
        at = write_headers(
            out, at, headers[1], headers[2], headers[0][row], headers[0][row + 1], encodings[2]
        )
        if has_rest:
            at = write_range(out, at, rest[1], rest[0][row], rest[0][row + 1])
        out[at] = 125
        at = write_bytes(out, at + 1, frame[1])
    return at
