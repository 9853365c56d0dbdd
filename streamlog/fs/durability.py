"""Files and directories in memory that track which of their state is durable.

A file is its present bytes and the changes since its last sync, each with the bytes it overwrote. A
directory is its present names; all changes of names since the directories were synced are in one
journal, each with the previous target. Undoing changes, newest first, therefore yields every state
that a power cut may leave:

    file        synced bytes + any of its unsynced changes, each whole, missing, cut after any
                byte, missing some 512-byte blocks, or as size without bytes (zeros)
    directory   synced names + any of the unsynced changes; a rename is one change, and undoing
                a change also undoes later changes of the same names

A block that survives with a write survives with all earlier writes into it: it goes to the disk as
it is in the cache. Otherwise the model is deliberately weaker than any one file system: ext4 and
XFS hide a forgotten directory sync that another one would punish. Syncing a file does not sync its
name.
"""

from collections.abc import Hashable, Iterable, Iterator
from enum import Enum
from itertools import pairwise
from random import Random
from typing import Final, NamedTuple

__all__ = [
    "Access",
    "Directory",
    "FileChange",
    "Journal",
    "Loss",
    "MemoryInode",
    "NameEntry",
    "Node",
    "copy_tree",
    "facts",
    "walk",
]

BLOCK_SIZE: Final = 512  # the unit that a disk writes as a whole


Access = tuple[int, int, int]  # owner, group and mode; changes are durable at once


class Loss(Enum):
    """How much of the unsynced changes a power cut loses."""

    NOTHING = "nothing"
    EVERYTHING = "everything"
    RANDOM = "random"


class _Fate(Enum):
    KEPT = "kept"
    LOST = "lost"
    CUT = "cut after some byte"
    BLOCKS = "some blocks missing"
    ZEROS = "size without bytes"


_FATES: Final = tuple(_Fate)


class _Status(Enum):
    VOLATILE = "not synced"
    DURABLE = "synced, but kept for an older doomed change"
    DOOMED = "a sync of it failed: no later sync makes it durable"


class FileChange(NamedTuple):
    """One write or truncation, with the data to undo it."""

    position: int
    written: bytes | None  # None: a truncation to `position`
    overwritten: bytes
    size_before: int
    status: _Status = _Status.VOLATILE

    def blocks(self) -> range:
        """Return the numbers of the blocks written to."""
        end = self.position + len(self.written or b"")
        if end == self.position:
            return range(0)
        return range(self.position // BLOCK_SIZE, -(-end // BLOCK_SIZE))


class MemoryInode:
    """A regular file: bytes, unsynced changes, and holders of its lock.

    Copies share their bytes until one of them changes, so that copying a file system costs only the
    changes since the last copy.
    """

    __slots__ = ("access", "changes", "data", "links", "locks", "mtime_ns", "number")

    def __init__(self, number: int, mtime_ns: int, access: Access) -> None:
        self.number = number
        self.access = access
        self.mtime_ns = mtime_ns
        self.links = 0
        self.data: bytes | bytearray = b""  # `bytes` if a copy shares them
        self.changes: list[FileChange] = []
        self.locks: dict[int, bool] = {}  # number of the open handle -> whether shared

    def write(self, source: bytes, position: int) -> None:
        """Write `source` at `position`, filling a gap before it with zeros."""
        size = len(self.data)
        overwritten = bytes(self.data[position : position + len(source)])
        self.changes.append(FileChange(position, source, overwritten, size))
        _write(self._own_data(), source, position)

    def truncate(self, size: int) -> None:
        """Truncate or extend to `size` bytes."""
        self.changes.append(FileChange(size, None, bytes(self.data[size:]), len(self.data)))
        _resize(self._own_data(), size)

    def sync(self) -> None:
        """Make all changes durable except those that a failed sync has doomed.

        Later writes into their blocks are doomed as well: as long as the page is in the cache, ext4
        treats such blocks as allocated and never records that they are written.
        """
        doomed = {
            number
            for change in self.changes
            if change.status is _Status.DOOMED
            for number in change.blocks()
        }
        if not doomed:
            self.changes.clear()
            return
        self.changes = [
            change._replace(
                status=_Status.DURABLE if doomed.isdisjoint(change.blocks()) else _Status.DOOMED
            )
            if change.status is _Status.VOLATILE
            else change
            for change in self.changes
        ]

    def doom(self) -> None:
        """Treat the unsynced changes as Linux does when a sync fails.

        They stay readable and the next sync succeeds, but they may never reach the disk.
        """
        self._mark(_Status.DOOMED)

    def _mark(self, status: _Status) -> None:
        self.changes = [
            change._replace(status=status) if change.status is _Status.VOLATILE else change
            for change in self.changes
        ]

    def copy(self) -> "MemoryInode":
        """Return a copy with the same unsynced changes, without locks."""
        inode = MemoryInode(self.number, self.mtime_ns, self.access)
        inode.links = self.links
        inode.data = self.data = bytes(self.data)
        inode.changes = self.changes.copy()
        return inode

    def cut_power(self, random: Random, loss: Loss) -> None:
        """Become a state that a power cut may leave."""
        if not self.changes:
            return
        if loss is not Loss.NOTHING:
            data, changes = self._own_data(), self.changes
            for change in reversed(changes):
                _take_back(data, change)
            fates = _choose_fates(changes, random, loss)
            kept = [_kept(*pair, random) for pair in zip(changes, fates, strict=True)]
            _complete_blocks(changes, kept)
            for change, fate, ranges in zip(changes, fates, kept, strict=True):
                _apply(data, change, fate, ranges)
        self.changes = []

    def _own_data(self) -> bytearray:
        if not isinstance(self.data, bytearray):
            self.data = bytearray(self.data)
        return self.data


class Directory:
    """A directory: its present names."""

    __slots__ = ("access", "mtime_ns", "names", "number")

    def __init__(self, number: int, mtime_ns: int, access: Access) -> None:
        self.number = number
        self.access = access
        self.mtime_ns = mtime_ns
        self.names: dict[str, Node] = {}

    def replace(self, name: str, node: "Node | None") -> None:
        """Let `name` denote `node`, or nothing."""
        before = self.names.pop(name, None)
        if isinstance(before, MemoryInode):
            before.links -= 1
        if node is not None:
            self.names[name] = node
            if isinstance(node, MemoryInode):
                node.links += 1


Node = MemoryInode | Directory


class NameEntry(NamedTuple):
    """One name of a directory, before and after a change."""

    directory: Directory
    name: str
    before: Node | None
    after: Node | None


class _NameChange(NamedTuple):
    entries: tuple[NameEntry, ...]
    volatile_in: set[Directory]  # the directories still to be synced

    def names(self) -> set[tuple[int, str]]:
        return {(entry.directory.number, entry.name) for entry in self.entries}


class Journal:
    """The changes of names that are not durable yet, oldest first."""

    __slots__ = ("_changes",)

    def __init__(self) -> None:
        self._changes: list[_NameChange] = []

    def change(self, *entries: NameEntry) -> None:
        """Change names as one atomic operation."""
        self._changes.append(_NameChange(entries, {entry.directory for entry in entries}))
        for entry in entries:
            entry.directory.replace(entry.name, entry.after)

    def sync(self, directory: Directory) -> None:
        """Make the names of `directory` durable.

        A rename between two directories is durable when both are synced. Earlier changes that a
        durable change depends on are durable with it.
        """
        needed: set[tuple[int, str]] = set()
        volatile = []
        for change in reversed(self._changes):
            change.volatile_in.discard(directory)
            names = change.names()
            if change.volatile_in and needed.isdisjoint(names):
                volatile.append(change)
            else:
                needed |= names
        self._changes = volatile[::-1]

    def volatile_names(self) -> list[tuple[Directory, str]]:
        """Return directory and name of every change that is not durable, oldest first."""
        return [
            (entry.directory, entry.name) for change in self._changes for entry in change.entries
        ]

    def copy(self, copies: dict[Node, Node]) -> "Journal":
        """Return the journal of a copied tree; adds removed nodes to `copies`."""
        journal = Journal()
        for change in self._changes:
            entries = tuple(
                NameEntry(
                    _copy_directory(entry.directory, copies),
                    entry.name,
                    None if entry.before is None else copy_tree(entry.before, copies),
                    None if entry.after is None else copy_tree(entry.after, copies),
                )
                for entry in change.entries
            )
            volatile_in = {_copy_directory(found, copies) for found in change.volatile_in}
            journal._changes.append(_NameChange(entries, volatile_in))
        return journal

    def facts(self) -> Hashable:
        """Return a value that equal journals have in common, nodes by their numbers."""
        return tuple(
            (
                tuple(
                    (
                        entry.directory.number,
                        entry.name,
                        _number(entry.before),
                        _number(entry.after),
                    )
                    for entry in change.entries
                ),
                frozenset(found.number for found in change.volatile_in),
            )
            for change in self._changes
        )

    def nodes(self) -> Iterator[Node]:
        """Yield the nodes that the changes concern, also those without a name today."""
        for change in self._changes:
            for entry in change.entries:
                yield entry.directory
                yield from (node for node in (entry.before, entry.after) if node is not None)

    def cut_power(self, random: Random, loss: Loss) -> None:
        """Undo some changes as a power cut may; the rest is durable."""
        for change in reversed(self._choose_undone(random, loss)):
            for entry in change.entries:
                entry.directory.replace(entry.name, entry.before)
        self._changes = []

    def _choose_undone(self, random: Random, loss: Loss) -> list[_NameChange]:
        if loss is Loss.NOTHING or not self._changes:
            return []
        if loss is Loss.EVERYTHING:
            return self._changes
        # With many independent changes, all or none of them would never occur: hence three kinds.
        probability = random.choice((0.1, 0.5, 0.9))
        undone, gone = [], set[tuple[int, str]]()
        for change in self._changes:
            names = change.names()
            if random.random() < probability or not gone.isdisjoint(names):
                undone.append(change)
                gone |= names
        return undone


def copy_tree(node: Node, copies: dict[Node, Node]) -> Node:
    """Return a copy of a node and everything below it, each node once; `copies` maps old to new."""
    copy = copies.get(node)
    if copy is not None:
        return copy
    if isinstance(node, MemoryInode):
        copies[node] = copy = node.copy()
        return copy
    copies[node] = directory = Directory(node.number, node.mtime_ns, node.access)
    for name, child in node.names.items():
        directory.names[name] = copy_tree(child, copies)
    return directory


def walk(directory: Directory, path: str) -> Iterator[tuple[str, Node]]:
    """Yield path and node of everything below `directory`, whose own path is `path`."""
    for name, node in directory.names.items():
        below = f"{path}/{name}"
        yield below, node
        if isinstance(node, Directory):
            yield from walk(node, below)


def facts(nodes: Iterable[Node]) -> Hashable:
    """Return a value that equal trees have in common, with the bytes of every file.

    Locks do not count, and neither does the order in which a directory got its names.
    """
    found: dict[int, Hashable] = {}
    waiting = [*nodes]
    while waiting:
        node = waiting.pop()
        if node.number in found:
            continue
        common = (node.mtime_ns, node.access)
        if isinstance(node, MemoryInode):
            found[node.number] = (*common, node.links, bytes(node.data), tuple(node.changes))
        else:
            names = frozenset((name, below.number) for name, below in node.names.items())
            found[node.number] = (*common, names)
            waiting += node.names.values()
    return frozenset(found.items())


def _number(node: Node | None) -> int | None:
    return None if node is None else node.number


def _copy_directory(directory: Directory, copies: dict[Node, Node]) -> Directory:
    copy = copy_tree(directory, copies)
    assert isinstance(copy, Directory)
    return copy


def _choose_fates(changes: list[FileChange], random: Random, loss: Loss) -> list[_Fate]:
    """Return one fate per change: all alike, all up to one of them, or each independent."""
    count = len(changes)
    if loss is Loss.EVERYTHING:
        fates = [_Fate.LOST] * count
    elif count == 1 or random.random() < 0.5:
        fates = [random.choice(_FATES) for _ in changes]
    else:
        kept = random.randrange(count + 1)
        fates = [_Fate.KEPT] * kept + [_Fate.LOST] * (count - kept)
        if kept < count:
            fates[kept] = random.choice(_FATES)
    for index, change in enumerate(changes):
        if change.status is _Status.DURABLE:
            fates[index] = _Fate.KEPT
        elif change.status is _Status.DOOMED and fates[index] is _Fate.LOST:
            # Its size may still have reached the disk with a later sync.
            fates[index] = random.choice((_Fate.LOST, _Fate.ZEROS))
    return fates


_Ranges = list[tuple[int, int]]


def _kept(change: FileChange, fate: _Fate, random: Random) -> _Ranges:
    """Return which bytes of a write survive, as (start, end) in the file."""
    if change.written is None or fate in (_Fate.LOST, _Fate.ZEROS):
        return []
    start, end = change.position, change.position + len(change.written)
    if fate is _Fate.KEPT:
        return [(start, end)]
    if fate is _Fate.CUT:
        return [(start, start + random.randrange(end - start + 1))]
    return [block for block in _blocks(start, end) if random.random() < 0.5]


def _complete_blocks(changes: list[FileChange], kept: list[_Ranges]) -> None:
    """Let a block that survives with a later write survive with the earlier ones as well.

    A block goes to the disk as it is in the cache, with all earlier writes.
    """
    survives: set[int] = set()
    for change, ranges in zip(reversed(changes), reversed(kept), strict=True):
        own = {start // BLOCK_SIZE for pair in ranges for start, _ in _blocks(*pair)}
        if change.written is not None:
            end = change.position + len(change.written)
            ranges += [
                block
                for block in _blocks(change.position, end)
                if block[0] // BLOCK_SIZE in survives
            ]
        survives |= own


def _blocks(start: int, end: int) -> _Ranges:
    """Return a range of bytes split at block boundaries."""
    cuts = [start, *range(start - start % BLOCK_SIZE + BLOCK_SIZE, end, BLOCK_SIZE), end]
    return [(a, b) for a, b in pairwise(cuts) if a < b]


def _apply(data: bytearray, change: FileChange, fate: _Fate, ranges: _Ranges) -> None:
    """Apply the surviving part of a change."""
    position, written = change.position, change.written
    if written is None:
        if fate is not _Fate.LOST:
            _resize(data, position)  # a truncation happens or does not
        return
    if fate in (_Fate.ZEROS, _Fate.BLOCKS):
        _resize(data, max(len(data), position + len(written)))
    for start, end in ranges:
        _write(data, written[start - position : end - position], start)


def _take_back(data: bytearray, change: FileChange) -> None:
    _resize(data, change.size_before)
    data[change.position : change.position + len(change.overwritten)] = change.overwritten


def _write(data: bytearray, source: bytes, position: int) -> None:
    if position > len(data):
        _resize(data, position)
    data[position : position + len(source)] = source


def _resize(data: bytearray, size: int) -> None:
    if size < len(data):
        del data[size:]
    elif size > len(data):
        data.extend(bytes(size - len(data)))
