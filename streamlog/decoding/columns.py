"""Columns that kernels fill: the nodes of an Arrow type, side by side in three buffers.

Each node of a type (a struct, its fields, the elements of their lists) is a column of *cells*. A
cell has one byte of validity and one int64, the *word*: a number, the bits of one, the index of a
symbol, or where the cell ends among the bytes or the children that it is made of. Nodes with bytes
have a range of a buffer of bytes in addition.

`NODES` of a kernel is int64[n, NODE_WIDTH], one row per node:

    KIND        how cells are stored, one of WORD, BYTES, LIST, STRUCT, FIXED
    BASE        the first cell in the buffers of words and validity
    CAPACITY    how many cells there is room for
    COUNT       how many cells there are
    DATA_BASE   the first byte in the buffer of bytes
    DATA_SIZE   how many bytes there is room for
    SIZE        how many bytes there are
    OTHER       the child of a list; the bytes of each cell of FIXED

When a kernel runs out of room, it takes back the row it was in, and `Columns.grow` makes room for
as many rows as are left. So no pass measures the values first, and nothing is allocated because a
value claims to be large.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamlog.decoding.arrays import array_of_integers, array_of_texts
from streamlog.decoding.column_layout import (
    BASE,
    BYTES,
    CAPACITY,
    COUNT,
    DATA_BASE,
    DATA_SIZE,
    FIXED,
    KIND,
    LIST,
    NODE_WIDTH,
    OTHER,
    SIZE,
    STRUCT,
)
from streamlog.errors import InvalidOptionError, LimitExceededError
from streamlog.records.layout import MAX_INT32

__all__ = ["MAX_NODES", "Columns", "Meaning", "ColumnNode", "ColumnTree"]

MAX_NODES: Final = 10_000
MAX_DEPTH: Final = 60
_UUID_SIZE: Final = 16
_UUID_TEXT: Final = 36
_SPARE_CELLS: Final = 64
_SPARE_BYTES: Final = 256


class Meaning(Enum):
    """What a word or the bytes of a cell mean, where the Arrow type alone does not say it."""

    PLAIN = auto()
    FLOAT_BITS = auto()  # the bits of a float32
    SYMBOL = auto()  # the index of a symbol
    NUMBERED_SYMBOL = auto()  # the number of an enum's value
    UUID = auto()  # 16 bytes, shown as text
    UNSIGNED = auto()  # a uint64, shown as a decimal
    TIMESTAMP = auto()  # a struct of seconds and nanoseconds since 1970
    DURATION = auto()  # a struct of seconds and nanoseconds
    WRAPPER = auto()  # a struct of one value, null if the struct is


@dataclass(slots=True)
class ColumnNode:
    """One node of a type.

    Attributes:
        kind: How its cells are stored.
        type: The Arrow type of its values.
        path: Its place as people name it: `a.b[]`.
        index: Its row of `NODES`.
        children: The fields of a struct, the element of a list, key and value of a map.
        width: Bytes of each cell of FIXED.
        meaning: What a word means.
        symbols: Of an enum, by index; with NUMBERED_SYMBOL by number.
        is_repeated: Whether it lies below a list, so that a row may have any number of cells.
    """

    kind: int
    type: pa.DataType
    path: str
    index: int
    is_repeated: bool
    children: list["ColumnNode"] = field(default_factory=list)
    width: int = 0
    meaning: Meaning = Meaning.PLAIN
    symbols: Sequence[str] | dict[int, str] = ()

    def of_each_row(self) -> Iterator["ColumnNode"]:
        """Yield this node and those below it that are not below a list of it."""
        yield self
        if self.kind == STRUCT:
            for child in self.children:
                yield from child.of_each_row()


class ColumnTree:
    """The nodes of one type, numbered in the order they are added."""

    def __init__(self) -> None:
        self.nodes: list[ColumnNode] = []

    def add(
        self,
        kind: int,
        path: str,
        above: ColumnNode | None,
        *,
        type: pa.DataType | None = None,
        width: int = 0,
        meaning: Meaning = Meaning.PLAIN,
        symbols: Sequence[str] | dict[int, str] = (),
    ) -> ColumnNode:
        """Add a node; the types of structs and lists are set once their children are known.

        Raises:
            InvalidOptionError: There are too many nodes, as of a type that contains itself.
        """
        if len(self.nodes) >= MAX_NODES or path.count(".") + path.count("[") > MAX_DEPTH:
            raise InvalidOptionError(
                "the schema is too large or too deep for columns",
                got=f"more than {MAX_NODES} columns or {MAX_DEPTH} levels",
                hint="give a reader's schema that leaves out some fields",
            )
        is_repeated = above is not None and (above.is_repeated or above.kind == LIST)
        found = ColumnNode(
            kind, type, path, len(self.nodes), is_repeated, [], width, meaning, symbols
        )
        self.nodes.append(found)
        if above is not None:
            above.children.append(found)
        return found


class Columns:
    """Buffers for the rows of one call.

    Args:
        tree: The nodes.
        sizes: int64[n], the bytes of each row.

    Attributes:
        nodes: int64[n, NODE_WIDTH].
        saved: int64[n, 2], where a kernel keeps what it takes back.
        each_row: int64[k], the nodes that have one cell per row.
        words: int64[cells].
        valid: uint8[cells], 1 or 0.
        data: uint8[bytes].
    """

    def __init__(self, tree: ColumnTree, sizes: NDArray[np.int64]) -> None:
        self._tree, self._sizes = tree, sizes
        rows, size = len(sizes), int(sizes.sum())
        self.nodes = np.zeros((len(tree.nodes), NODE_WIDTH), np.int64)
        self.saved = np.zeros((len(tree.nodes), 2), np.int64)
        self.each_row = np.array([n.index for n in tree.nodes if not n.is_repeated], np.int64)
        texts = max(1, sum(node.kind == BYTES for node in tree.nodes))
        for node in tree.nodes:
            row = self.nodes[node.index]
            row[KIND] = node.kind
            row[OTHER] = _other(node)
            row[CAPACITY] = rows + (_SPARE_CELLS if node.is_repeated else 0)
            if node.kind == BYTES:
                row[DATA_SIZE] = size // texts + _SPARE_BYTES
            elif node.kind == FIXED:
                row[DATA_SIZE] = row[CAPACITY] * node.width
        self.words, self.valid, self.data = self._allocate()

    def _allocate(self) -> tuple[NDArray[np.int64], NDArray[np.uint8], NDArray[np.uint8]]:
        for base, sizes in ((BASE, CAPACITY), (DATA_BASE, DATA_SIZE)):
            ends = np.cumsum(self.nodes[:, sizes])
            self.nodes[:, base] = ends - self.nodes[:, sizes]
        cells, size = int(self.nodes[:, CAPACITY].sum()), int(self.nodes[:, DATA_SIZE].sum())
        return np.empty(cells, np.int64), np.empty(cells, np.uint8), np.empty(size, np.uint8)

    def fill(self, decode: Callable[..., int], *arguments: Any) -> NDArray[np.int64]:
        """Decode all rows, and make room where there is too little.

        Args:
            decode: A kernel. After the arguments it gets NODES with `saved` and `each_row`, the
                buffers, int64[n, 3] for what is wrong with rows, and the row to begin with. It
                returns how many rows are complete; if that is not all of them, the last of the
                three numbers of the next row is the node that is full.
            *arguments: Its first arguments.

        Returns:
            int64[n, 3].
        """
        count, done = len(self._sizes), 0
        errors = np.zeros((count, 3), np.int64)
        while True:
            columns = self.nodes, self.saved, self.each_row
            buffers = self.words, self.valid, self.data
            done = decode(*arguments, columns, buffers, errors, done)
            if done == count:
                return errors
            self.grow(done, int(errors[done, 2]))

    def grow(self, done: int, full: int) -> None:
        """Make more room: as much as the rows left need if they are like those before.

        Args:
            done: How many rows are complete.
            full: The node that had no room for the next row; it gets twice as much at least.
        """
        old, words, valid, data = self.nodes.copy(), self.words, self.valid, self.data
        share = float(self._sizes.sum()) / max(int(self._sizes[:done].sum()), 1) * 1.1
        for node in self._tree.nodes:
            row = self.nodes[node.index]
            factor, next_size = (2, int(self._sizes[done])) if node.index == full else (1, 0)
            if node.is_repeated:
                row[CAPACITY] = _more(row[CAPACITY] * factor, row[COUNT] * share, _SPARE_CELLS)
            if node.kind == BYTES:
                wanted = max(row[SIZE] * share, row[SIZE] + next_size)
                row[DATA_SIZE] = _more(row[DATA_SIZE] * factor, wanted, _SPARE_BYTES)
            elif node.kind == FIXED:
                row[DATA_SIZE] = row[CAPACITY] * node.width
        self.words, self.valid, self.data = self._allocate()
        for before, now in zip(old, self.nodes, strict=True):
            cells, size = before[COUNT], before[SIZE]
            _copy(self.words, now[BASE], words, before[BASE], cells)
            _copy(self.valid, now[BASE], valid, before[BASE], cells)
            _copy(self.data, now[DATA_BASE], data, before[DATA_BASE], size)

    def array(self) -> pa.Array:
        """Return the rows as an Arrow array.

        Raises:
            LimitExceededError: A column has more bytes than one array can.
        """
        return self._built(self._tree.nodes[0])

    def _built(self, node: ColumnNode) -> pa.Array:
        row = self.nodes[node.index]
        base, count = int(row[BASE]), int(row[COUNT])
        words, valid = self.words[base : base + count], self.valid[base : base + count]
        validity, nulls = _validity(valid)
        if node.kind == STRUCT:
            children = [self._built(child) for child in node.children]
            if node.meaning is not Meaning.PLAIN:
                return _of_known_message(node, children, validity, nulls)
            return pa.Array.from_buffers(
                node.type, count, [validity], null_count=nulls, children=children
            )
        if node.kind == LIST:
            items = self._built(node.children[0])
            if pa.types.is_map(node.type):
                words, items = _without_repeated_keys(words, items)
            return pa.Array.from_buffers(
                node.type,
                count,
                [validity, _offsets(words, node)],
                null_count=nulls,
                children=[items],
            )
        start = int(row[DATA_BASE])
        data = self.data[start : start + int(row[SIZE])]
        if node.kind == BYTES:
            buffers = [validity, _offsets(words, node), pa.py_buffer(data)]
            return pa.Array.from_buffers(node.type, count, buffers, null_count=nulls)
        if node.kind == FIXED:
            return _of_fixed(node, count, validity, nulls, data)
        return _of_words(node, words, validity, nulls)


def _other(node: ColumnNode) -> int:
    if node.kind == LIST:
        return node.children[0].index
    return node.width


def _more(room: int, wanted: float, spare: int) -> int:
    return max(int(room), int(wanted) + spare)


def _copy(target: Any, to: int, source: Any, start: int, count: int) -> None:
    target[to : to + count] = source[start : start + count]


def _validity(valid: NDArray[np.uint8]) -> tuple[pa.Buffer | None, int]:
    nulls = len(valid) - int(np.count_nonzero(valid))
    if nulls == 0:
        return None, 0
    return pa.py_buffer(np.packbits(valid, bitorder="little")), nulls


def _offsets(ends: NDArray[np.int64], node: ColumnNode) -> pa.Buffer:
    if len(ends) and ends[-1] > MAX_INT32:
        raise LimitExceededError(
            f"column {node.path or 'value'} is too large for one array",
            got=int(ends[-1]),
            expected=f"at most {MAX_INT32} bytes or elements",
            hint="decode fewer values at once",
        )
    offsets = np.zeros(len(ends) + 1, np.int32)
    offsets[1:] = ends
    return pa.py_buffer(offsets)


def _without_repeated_keys(
    ends: NDArray[np.int64], entries: pa.StructArray
) -> tuple[NDArray[np.int64], pa.StructArray]:
    """Return maps in which of entries with the same key the last one stays."""
    sizes = np.diff(ends, prepend=0)
    if len(sizes) == 0 or sizes.max() < 2:
        return ends, entries
    indices = entries.field(0).dictionary_encode().indices
    codes = np.frombuffer(indices.buffers()[1], np.int32)[: len(indices)].astype(np.int64)
    rows = np.repeat(np.arange(len(ends), dtype=np.int64), sizes)
    _, last = np.unique((rows * (int(codes.max()) + 1) + codes)[::-1], return_index=True)
    if len(last) == len(codes):
        return ends, entries
    kept = np.sort(len(codes) - 1 - last)
    return np.cumsum(np.bincount(rows[kept], minlength=len(ends))), entries.take(
        array_of_integers(kept)
    )


def _of_known_message(
    node: ColumnNode, children: list[pa.Array], validity: pa.Buffer | None, nulls: int
) -> pa.Array:
    """Return a message that stands for a plain value."""
    if node.meaning is Meaning.WRAPPER:
        value = children[0]
        buffers = [validity, *value.buffers()[1:]]
        return pa.Array.from_buffers(value.type, len(value), buffers, null_count=nulls)
    seconds = np.frombuffer(children[0].buffers()[1], np.int64)
    nanos = np.frombuffer(children[1].buffers()[1], np.int32)
    micros = seconds * 1_000_000 + nanos // 1000
    buffers = [validity, pa.py_buffer(micros)]
    return pa.Array.from_buffers(node.type, len(micros), buffers, null_count=nulls)


def _of_words(
    node: ColumnNode, words: NDArray[np.int64], validity: pa.Buffer | None, nulls: int
) -> pa.Array:
    kind, count = node.type, len(words)
    if node.meaning in (Meaning.SYMBOL, Meaning.NUMBERED_SYMBOL):
        return _of_symbols(node, words, validity, nulls)
    if pa.types.is_null(kind):
        return pa.nulls(count)
    if pa.types.is_boolean(kind):
        data: NDArray[Any] = np.packbits(words.astype(np.uint8), bitorder="little")
    elif node.meaning is Meaning.UNSIGNED:
        data = np.zeros((count, 2), np.int64)
        data[:, 0] = words
    elif node.meaning is Meaning.FLOAT_BITS:
        data = words.astype(np.uint32)
    else:  # float64 as its bits
        data = words.astype(np.dtype(f"i{kind.bit_width // 8}"), copy=False)
    return pa.Array.from_buffers(kind, count, [validity, pa.py_buffer(data)], null_count=nulls)


def _of_symbols(
    node: ColumnNode, words: NDArray[np.int64], validity: pa.Buffer | None, nulls: int
) -> pa.Array:
    names = node.symbols
    if isinstance(names, dict):
        numbers, indexes = np.unique(words, return_inverse=True)
        names = [names.get(number, str(number)) for number in numbers.tolist()]
    else:
        indexes = words
    if not len(names):
        return pa.nulls(len(words), pa.string())
    found = pa.Array.from_buffers(
        pa.int32(), len(words), [validity, pa.py_buffer(indexes.astype(np.int32))], nulls
    )
    return array_of_texts(names).take(found)


def _of_fixed(
    node: ColumnNode, count: int, validity: pa.Buffer | None, nulls: int, data: NDArray[np.uint8]
) -> pa.Array:
    if pa.types.is_decimal(node.type):
        return pa.Array.from_buffers(
            node.type, count, [validity, pa.py_buffer(data)], null_count=nulls
        )
    width = node.width
    if node.meaning is Meaning.UUID:
        data, width = _uuid_texts(data), _UUID_TEXT
    ends = np.arange(1, count + 1, dtype=np.int64) * width
    buffers = [validity, _offsets(ends, node), pa.py_buffer(data)]
    return pa.Array.from_buffers(node.type, count, buffers, null_count=nulls)


def _uuid_texts(data: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return UUIDs in their usual form: 8-4-4-4-12 hexadecimal digits."""
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    values = data.reshape(-1, _UUID_SIZE)
    texts = np.full((len(values), _UUID_TEXT), ord("-"), np.uint8)
    places = [each for each in range(_UUID_TEXT) if each not in (8, 13, 18, 23)]
    texts[:, places[::2]] = digits[values >> 4]
    texts[:, places[1::2]] = digits[values & 0xF]
    return texts.reshape(-1)
