"""Compiled loops that find ids in front of values, and headers. Twin: `tests.twins.framing`."""

import numpy as np
from numpy.typing import NDArray

from streamlog.binary.jit import int64, kernel

__all__ = ["find_changes", "find_headers", "read_ids"]

_MAGIC = 0  # as in `streamlog.decoding.framing`
_PREFIX_SIZE = 5
_NO_ID = -1

Spans = tuple[NDArray[np.int64], NDArray[np.int64]]


@kernel
def find_headers(
    lists: Spans,
    keys: Spans,
    data: NDArray[np.uint8],
    is_usable: NDArray[np.bool_],
    name: NDArray[np.uint8],
    out_places: NDArray[np.int64],
) -> int:
    """Find the last header of a name in each record.

    Args:
        lists: int64[n], the first header of each record; int64[n], the one after its last.
        keys: int64[h], where the name of each header starts; int64[h], where it ends.
        data: uint8[b], the names.
        is_usable: bool[h]: whether a header and its name are not null.
        name: uint8[k].
        out_places: int64[n], filled with the number of the header, -1 if there is none.

    Returns:
        How many records have one.
    """
    firsts, lasts = lists
    starts, ends = keys
    found = int64(0)
    for row in range(firsts.size):
        place = int64(-1)
        header = lasts[row] - 1
        while header >= firsts[row] and place < 0:
            if is_usable[header] and ends[header] - starts[header] == name.size:
                matched = int64(0)
                while matched < name.size and data[starts[header] + matched] == name[matched]:
                    matched += 1
                if matched == name.size:
                    place = header
            header -= 1
        out_places[row] = place
        found += int64(place >= 0)
    return found


@kernel
def read_ids(
    data: NDArray[np.uint8],
    values: Spans,
    is_wanted: NDArray[np.bool_],
    out_ids: NDArray[np.int64],
) -> int:
    """Read the id in front of each value.

    Args:
        data: uint8[b], the bytes of all values.
        values: int64[n], where each value starts; int64[n], where it ends.
        is_wanted: bool[n]; the others have none.
        out_ids: int64[n], filled with the id, -1 if there is none.

    Returns:
        How many values have one.
    """
    starts, ends = values
    found = int64(0)
    for row in range(starts.size):
        at = starts[row]
        out_ids[row] = _NO_ID
        if is_wanted[row] and ends[row] - at >= _PREFIX_SIZE and data[at] == _MAGIC:
            schema_id = int64(0)
            for byte in range(1, _PREFIX_SIZE):
                schema_id = schema_id << 8 | int64(data[at + byte])
            out_ids[row] = schema_id
            found += 1
    return found


@kernel
def find_changes(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    out_is_new: NDArray[np.bool_],
) -> int:
    """Compare ranges of bytes with those before them.

    Args:
        data: uint8[b].
        starts: int64[n], where each range starts.
        ends: int64[n], where it ends.
        out_is_new: bool[n], filled with whether it differs from the one before; so does the first.

    Returns:
        How many do.
    """
    changes = int64(0)
    for row in range(starts.size):
        size = ends[row] - starts[row]
        is_new = row == 0 or ends[row - 1] - starts[row - 1] != size
        byte = int64(0)
        while not is_new and byte < size:
            is_new = data[starts[row] + byte] != data[starts[row - 1] + byte]
            byte += 1
        out_is_new[row] = is_new
        changes += int64(is_new)
    return changes
