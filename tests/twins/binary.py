"""The kernels of `streamlog.binary` in plain Python, by other means."""

from streamlog.binary.arrays import WORD_SIZE
from streamlog.binary.murmur2 import FACTOR, SEED
from streamlog.binary.siphash import MARK_LONG, MARK_SECOND_HALF, STATE

WORDS = 1 << 64


def plain_read_int(buffer: bytes, position: int, size: int) -> int:
    """Return the signed integer of `size` bytes at `position`."""
    return int.from_bytes(buffer[position : position + size], "big", signed=True)


def plain_write_int(buffer: bytearray, position: int, size: int, value: int) -> None:
    """Write the low `size` bytes of `value` at `position`."""
    buffer[position : position + size] = (value % (1 << 8 * size)).to_bytes(size, "big")


def plain_read_varint(buffer: bytes, position: int, *, width: int) -> tuple[int, int] | None:
    """Read a varint (`width` 32) or varlong (64); return value and size, or None."""
    groups = bytearray()
    while len(groups) < -(-width // 7):
        chunk = buffer[position + len(groups) :][:1]
        if not chunk:
            return None
        groups += chunk
        if chunk[0] < 128:
            bits = sum((group % 128) * 128**place for place, group in enumerate(groups))
            half, odd = divmod(bits % 2**width, 2)
            return (-half - 1 if odd else half), len(groups)
    return None


def plain_write_varlong(value: int) -> bytes:
    """Return `value`, an int64, as varlong."""
    bits = 2 * value if value >= 0 else -2 * value - 1
    groups = []
    while bits >= 128:
        bits, group = divmod(bits, 128)
        groups.append(group + 128)
    return bytes([*groups, bits])


def plain_murmur2(data: bytes) -> int:
    """Return the 32-bit hash of `data`, unsigned."""
    state = SEED ^ len(data)
    whole = len(data) // 4 * 4
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little") * FACTOR % 2**32
        state = state * FACTOR % 2**32 ^ (word ^ word >> 24) * FACTOR % 2**32
    if data[whole:]:
        state = (state ^ int.from_bytes(data[whole:], "little")) * FACTOR % 2**32
    state = (state ^ state >> 13) * FACTOR % 2**32
    return state ^ state >> 15


def plain_siphash(data: bytes, key: bytes) -> bytes:
    """Return the 16 bytes of the hash of `data` under a key of 16 bytes."""
    low, high = (int.from_bytes(half, "little") for half in (key[:8], key[8:]))
    state = [start ^ half for start, half in zip(STATE, (low, high, low, high), strict=True)]
    state[1] ^= MARK_LONG
    whole = len(data) // WORD_SIZE * WORD_SIZE
    last = data[whole:].ljust(WORD_SIZE - 1, b"\0") + bytes([len(data) % 256])
    for block in [*(data[at : at + WORD_SIZE] for at in range(0, whole, WORD_SIZE)), last]:
        word = int.from_bytes(block, "little")
        state[3] ^= word
        state = _stirred(state, 2)
        state[0] ^= word
    halves = b""
    for place, mark in ((2, MARK_LONG), (1, MARK_SECOND_HALF)):
        state[place] ^= mark
        state = _stirred(state, 4)
        halves += (state[0] ^ state[1] ^ state[2] ^ state[3]).to_bytes(WORD_SIZE, "little")
    return halves


def _stirred(state: list[int], times: int) -> list[int]:
    def turned(word: int, bits: int) -> int:
        return (word << bits | word >> 64 - bits) % WORDS

    v0, v1, v2, v3 = state
    for _ in range(times):
        v0, v2 = (v0 + v1) % WORDS, (v2 + v3) % WORDS
        v1, v3 = turned(v1, 13) ^ v0, turned(v3, 16) ^ v2
        v0, v2 = (turned(v0, 32) + v3) % WORDS, (v2 + v1) % WORDS
        v1, v3 = turned(v1, 17) ^ v2, turned(v3, 21) ^ v0
        v2 = turned(v2, 32)
    return [v0, v1, v2, v3]
