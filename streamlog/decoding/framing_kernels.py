"""The compiled loop that finds a header by its name in each record. Twin: `tests.twins.framing`."""

import numpy as np
from numpy.typing import NDArray

from streamlog.binary.jit import int64, kernel

__all__ = ["find_headers"]

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
