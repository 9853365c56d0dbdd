"""XXH3, 64 bits, seed 0: the hash that brokers keep of the topics of a group.

Source: the specification of XXH3 (xxHash, doc/xxhash_spec.md); the secret is its kSecret.
"""

import struct
from typing import Final

__all__ = ["xxh3_64"]

_SECRET: Final = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
_P32_1: Final = 0x9E3779B1
_P32_2: Final = 0x85EBCA77
_P32_3: Final = 0xC2B2AE3D
_P64_1: Final = 0x9E3779B185EBCA87
_P64_2: Final = 0xC2B2AE3D27D4EB4F
_P64_3: Final = 0x165667B19E3779F9
_P64_4: Final = 0x85EBCA77C2B2AE63
_P64_5: Final = 0x27D4EB2F165667C5
_MIX_1: Final = 0x165667919E3779F9
_MIX_2: Final = 0x9FB21C651E98DF25
_MASK: Final = (1 << 64) - 1
_STRIPE: Final = 64
_STRIPES_PER_BLOCK: Final = 16  # (secret size - stripe size) / 8
_LANES: Final = struct.Struct("<8Q")


def xxh3_64(data: bytes) -> int:
    """Return the hash of bytes, an unsigned number of 64 bits."""
    size = len(data)
    if size <= 16:
        return _up_to_16(data)
    if size <= 128:
        return _up_to_128(data)
    if size <= 240:
        return _up_to_240(data)
    return _longer(data)


def _u32(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")


def _u64(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")


def _folded(a: int, b: int) -> int:
    product = a * b
    return (product & _MASK) ^ (product >> 64)


def _avalanche(value: int) -> int:
    value ^= value >> 37
    value = value * _MIX_1 & _MASK
    return value ^ value >> 32


def _avalanche_64(value: int) -> int:
    """Return the last mix of XXH64, which the shortest inputs use."""
    value ^= value >> 33
    value = value * _P64_2 & _MASK
    value ^= value >> 29
    value = value * _P64_3 & _MASK
    return value ^ value >> 32


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _MASK


def _up_to_16(data: bytes) -> int:
    size = len(data)
    if size > 8:
        low = _u64(data, 0) ^ _u64(_SECRET, 24) ^ _u64(_SECRET, 32)
        high = _u64(data, size - 8) ^ _u64(_SECRET, 40) ^ _u64(_SECRET, 48)
        swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
        return _avalanche((size + swapped + high + _folded(low, high)) & _MASK)
    if size >= 4:
        value = _u32(data, size - 4) + (_u32(data, 0) << 32)
        value ^= _u64(_SECRET, 8) ^ _u64(_SECRET, 16)
        value ^= _rotated(value, 49) ^ _rotated(value, 24)
        value = value * _MIX_2 & _MASK
        value ^= (value >> 35) + size
        value = value * _MIX_2 & _MASK
        return value ^ value >> 28
    if size > 0:
        combined = data[0] << 16 | data[size >> 1] << 24 | data[-1] | size << 8
        return _avalanche_64(combined ^ _u32(_SECRET, 0) ^ _u32(_SECRET, 4))
    return _avalanche_64(_u64(_SECRET, 56) ^ _u64(_SECRET, 64))


def _mixed(data: bytes, at: int, secret_at: int) -> int:
    return _folded(
        _u64(data, at) ^ _u64(_SECRET, secret_at),
        _u64(data, at + 8) ^ _u64(_SECRET, secret_at + 8),
    )


def _up_to_128(data: bytes) -> int:
    size = len(data)
    total = size * _P64_1
    for at in reversed(range((size - 1) // 32 + 1)):
        total += _mixed(data, 16 * at, 32 * at)
        total += _mixed(data, size - 16 * (at + 1), 32 * at + 16)
    return _avalanche(total & _MASK)


def _up_to_240(data: bytes) -> int:
    size = len(data)
    total = size * _P64_1 + sum(_mixed(data, 16 * at, 16 * at) for at in range(8))
    total = _avalanche(total & _MASK)
    total += sum(_mixed(data, 16 * at, 16 * (at - 8) + 3) for at in range(8, size // 16))
    total += _mixed(data, size - 16, 136 - 17)
    return _avalanche(total & _MASK)


def _longer(data: bytes) -> int:
    size = len(data)
    sums = [_P32_3, _P64_1, _P64_2, _P64_3, _P64_4, _P32_2, _P64_5, _P32_1]
    for stripe in range((size - 1) // _STRIPE):
        place = stripe % _STRIPES_PER_BLOCK
        _accumulate(sums, data, stripe * _STRIPE, 8 * place)
        if place == _STRIPES_PER_BLOCK - 1:
            _scramble(sums)
    _accumulate(sums, data, size - _STRIPE, len(_SECRET) - _STRIPE - 7)
    total = size * _P64_1
    for lane in range(0, 8, 2):
        total += _folded(
            sums[lane] ^ _u64(_SECRET, 11 + 8 * lane),
            sums[lane + 1] ^ _u64(_SECRET, 19 + 8 * lane),
        )
    return _avalanche(total & _MASK)


def _accumulate(sums: list[int], data: bytes, at: int, secret_at: int) -> None:
    values = _LANES.unpack_from(data, at)
    keys = _LANES.unpack_from(_SECRET, secret_at)
    for lane, (value, key) in enumerate(zip(values, keys, strict=True)):
        keyed = value ^ key
        sums[lane ^ 1] = sums[lane ^ 1] + value & _MASK
        sums[lane] = sums[lane] + (keyed & 0xFFFFFFFF) * (keyed >> 32) & _MASK


def _scramble(sums: list[int]) -> None:
    keys = _LANES.unpack_from(_SECRET, len(_SECRET) - _STRIPE)
    for lane, key in enumerate(keys):
        value = sums[lane]
        sums[lane] = (value ^ value >> 47 ^ key) * _P32_1 & _MASK
