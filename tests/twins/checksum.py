"""The kernel of `streamlog.arrow.checksum` in plain Python."""

import numpy as np

from streamlog.arrow import checksum
from streamlog.arrow.sink_columns import SinkColumns
from streamlog.commits.fingerprint import checksum_sum


def plain_checksum_rows(columns: SinkColumns) -> int:
    """Return what `checksum_rows` returns, in plain Python."""
    keys = [None] * columns.count if columns.key is None else list(columns.key)
    values = list(columns.value)
    headers = [()] * columns.count if columns.headers is None else list(columns.headers)
    numbers = np.stack(checksum._numbers(columns), axis=1)
    total = 0
    for row in range(columns.count):
        hashes = checksum._plain_add_string((checksum._BASIS, 0), keys[row])
        hashes = checksum._plain_add_string(hashes, values[row])
        hashes = checksum._plain_add_word(hashes, len(headers[row]))
        for header in headers[row]:
            pair = checksum._plain_add_string((checksum._BASIS, 0), header.key.encode())
            for lane in checksum._plain_add_string(pair, header.value):
                hashes = checksum._plain_add_word(hashes, lane)
        for number in numbers[row].tolist():
            hashes = checksum._plain_add_word(hashes, number)
        first, second = hashes
        total = checksum_sum(total, checksum._join(_plain_mix(first), _plain_mix(second)))
    return total


def _plain_mix(value: int) -> int:
    value ^= value >> 16
    value = value * checksum._MIX & checksum._MASK
    return value ^ value >> 16
