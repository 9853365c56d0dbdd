"""Values of which each version shares memory with the one before: a commit copies no history."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar, overload

__all__ = ["Counts", "Items"]

_T_co = TypeVar("_T_co", covariant=True)
_FEW: Final = 64  # changed counts that are copied without regard to how many there are in all


class Items(Sequence[_T_co]):
    """An immutable sequence. A slice is a tuple.

    Its items are the first ones of a list that longer versions share: `appended` adds to that list,
    unless another version has done so before.

    Args:
        items: The items.
    """

    __slots__ = ("_shared", "_stop")

    def __init__(self, items: Iterable[_T_co] = ()) -> None:
        self._shared = list(items)
        self._stop = len(self._shared)

    def appended(self, items: "Iterable[_T_co]") -> "Items[_T_co]":
        """Return the sequence with more items at its end."""
        new: Items[_T_co] = Items()
        new._shared = self._shared
        if len(self._shared) > self._stop:  # another version went on from here
            new._shared = self._shared[: self._stop]
        new._shared.extend(items)
        new._stop = len(new._shared)
        return new

    def __len__(self) -> int:
        return self._stop

    @overload
    def __getitem__(self, at: int) -> _T_co: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[_T_co, ...]: ...
    def __getitem__(self, at: int | slice) -> _T_co | tuple[_T_co, ...]:
        if isinstance(at, slice):
            chosen = range(self._stop)[at]
            if chosen.step == 1:
                return tuple(self._shared[chosen.start : chosen.stop])
            return tuple(self._shared[each] for each in chosen)
        return self._shared[range(self._stop)[at]]

    def __iter__(self) -> Iterator[_T_co]:
        return itertools.islice(self._shared, self._stop)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Items | tuple):
            return NotImplemented
        return self[:] == other[:]

    def __hash__(self) -> int:
        return hash(self[:])

    def __repr__(self) -> str:
        return f"Items({self[:]!r})"


class Counts(Mapping[str, int]):
    """Immutable counts by name, none of them 0.

    A version is a dictionary that many share, and what has changed since. These changes are copied
    from version to version while their number is below the root of that of all names; then they
    become a dictionary of their own.

    Args:
        counts: The counts.
    """

    __slots__ = ("_changes", "_shared")

    def __init__(self, counts: Mapping[str, int] | None = None) -> None:
        self._shared: dict[str, int] = dict(counts or {})
        self._changes: dict[str, int] = {}

    def changed(self, counts: Mapping[str, int]) -> "Counts":
        """Return the counts with others for some names; 0 removes a name."""
        if not counts:
            return self
        new = Counts()
        new._shared, new._changes = self._shared, {**self._changes, **counts}
        if len(new._changes) > _FEW and len(new._changes) ** 2 > len(self._shared):
            merged = {**new._shared, **new._changes}
            new._shared, new._changes = {key: n for key, n in merged.items() if n}, {}
        return new

    def __getitem__(self, name: str) -> int:
        found = self._changes.get(name)
        if found is None:
            return self._shared[name]
        if found == 0:
            raise KeyError(name)
        return found

    def __iter__(self) -> Iterator[str]:
        yield from (name for name in self._shared if name not in self._changes)
        yield from (name for name, count in self._changes.items() if count)

    def __len__(self) -> int:
        return len(self._shared) + sum(
            (count > 0) - (name in self._shared) for name, count in self._changes.items()
        )
