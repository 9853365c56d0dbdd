"""The kernels of `streamlog.cleaner.map_kernels` in plain Python."""

from streamlog.cleaner.map_kernels import ALL_GO, ALL_STAY, LAST_STAY


def plain_put_keys(
    known: dict[bytes, int], records: list[tuple[int, bytes | None]], capacity: int
) -> int:
    """Put offsets by keys, None for a record that is not wanted; return how many were processed."""
    for row, (offset, key) in enumerate(records):
        if key is None:
            continue
        if len(known) >= capacity:
            return row
        known[key] = offset
    return len(records)


def plain_choose_records(
    known: dict[bytes, int], latest: int, records: list[tuple[int, bytes | None, bool]], way: int
) -> list[bool]:
    """Return which records of a batch stay, given offset, key, and whether there is a value."""
    stay = []
    for offset, key, has_value in records:
        if way in (ALL_GO, ALL_STAY):
            stay.append(way == ALL_STAY)
        elif offset > latest:
            stay.append(True)
        else:
            is_last = key is not None and offset >= known.get(key, 0)
            stay.append(is_last and (has_value or way == LAST_STAY))
    return stay
