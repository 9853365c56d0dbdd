"""Programs that read what one schema wrote into the columns of another: Avro's schema resolution.

A program is a list of instructions (`streamlog.decoding.avro_layout`) for `decode_avro`. All that
can be decided from the two schemas is decided here, once: which fields are skipped, which numbers
become longer ones, what missing fields are, which branches do not fit.

Source: Apache Avro specification, "Schema Resolution".
"""

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from streamlog.decoding import avro_layout as a
from streamlog.decoding.avro_columns import AvroColumns, UnionNode
from streamlog.decoding.avro_schema import AvroSchema, Schema, decimal_of, kind_of, logical_of
from streamlog.decoding.column_layout import FIXED
from streamlog.decoding.columns import ColumnNode
from streamlog.errors import InvalidOptionError

__all__ = ["AvroPrograms", "Mismatch"]

MAX_INSTRUCTIONS: Final = 1 << 20
_MAX_DEPTH: Final = 60
_FACTORS: Final = {"timestamp-millis": 1000, "local-timestamp-millis": 1000}
_PROMOTIONS: Final = {
    ("int", "int"): a.INT,
    ("int", "long"): a.INT,
    ("long", "long"): a.LONG,
    ("float", "float"): a.FLOAT,
    ("double", "double"): a.DOUBLE,
    ("boolean", "boolean"): a.BOOLEAN,
    ("int", "float"): a.INT_TO_FLOAT,
    ("long", "float"): a.LONG_TO_FLOAT,
    ("int", "double"): a.INT_TO_DOUBLE,
    ("long", "double"): a.LONG_TO_DOUBLE,
    ("float", "double"): a.FLOAT_TO_DOUBLE,
    ("string", "string"): a.TEXT,
    ("bytes", "string"): a.TEXT,
    ("string", "bytes"): a.BINARY,
    ("bytes", "bytes"): a.BINARY,
}
_SKIPPED: Final = {"int": a.SKIP_VARINT, "long": a.SKIP_VARINT, "enum": a.SKIP_VARINT}
_SKIPPED_SIZES: Final = {"boolean": 1, "float": 4, "double": 8, "null": 0}
_NAMED: Final = ("record", "enum", "fixed")


class Mismatch(Exception):  # noqa: N818 - it becomes the error of values
    """What the writer's schema has does not fit what the reader's schema expects."""


class AvroPrograms:
    """The programs of one reader, one after another in the same arrays.

    Args:
        columns: The columns of the reader's schema.

    Attributes:
        code: The instructions of all programs.
        numbers: The pool of numbers: tables of symbols.
        pool: The pool of bytes: defaults and bounds of decimals.
        messages: What `FAIL` reports.
        paths: By place, which field an instruction reads.
    """

    def __init__(self, columns: AvroColumns) -> None:
        self._columns = columns
        self.code: list[int] = []
        self.numbers: list[int] = []
        self.pool = bytearray(8)
        self.messages: list[str] = []
        self.paths: list[str] = []
        self._path = ""
        self._depth = 0
        self._writer = columns.schema
        self._routines: dict[str, list[int]] = {}
        self._failures: dict[str, int] = {}

    def add(self, writer: AvroSchema) -> int:
        """Compile the program for a writer's schema; return its place.

        A schema that does not fit at all becomes a program that reports it.

        Raises:
            InvalidOptionError: The program would be too long.
        """
        entry, self._writer, self._routines = self._here, writer, {}
        counts = len(self.numbers), len(self.pool), len(self.messages)
        try:
            self._read(writer.root, self._columns.schema.root, self._columns.tree.nodes[0])
            self._emit(a.END)
            self._add_routines()
        except Mismatch as error:
            del self.code[entry:], self.paths[entry // a.WIDTH :]
            del self.numbers[counts[0] :], self.pool[counts[1] :], self.messages[counts[2] :]
            self._path, self._depth = "", 0
            self._fail(str(error))
        return entry

    def add_failure(self, message: str) -> int:
        """Add a program that reports a message; return its place."""
        if message not in self._failures:
            self._failures[message] = self._here
            self._fail(message)
        return self._failures[message]

    # ---- instructions ----------------------------------------------------------------------------
    @property
    def _here(self) -> int:
        return len(self.code)

    def _emit(self, todo: int, a_: int = 0, b: int = 0, c: int = 0) -> int:
        if len(self.code) >= MAX_INSTRUCTIONS * a.WIDTH:
            raise InvalidOptionError("the Avro schema is too large")
        place = self._here
        self.code += (todo, a_, b, c)
        self.paths.append(self._path)
        return place

    def _fail(self, message: str) -> None:
        self._emit(a.FAIL, len(self.messages))
        self.messages.append(message)

    def _point(self, place: int, operand: int = a.A) -> None:
        """Let the operand of an instruction be the place that follows now."""
        self.code[place + operand] = self._here

    @contextmanager
    def _at(self, path: str) -> Iterator[None]:
        before, self._path = self._path, path
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise Mismatch("the writer's schema is nested too deeply")
        yield
        self._path, self._depth = before, self._depth - 1

    # ---- reading ---------------------------------------------------------------------------------
    def _read(self, writer: Schema, reader: Schema, node: ColumnNode) -> None:
        """Emit what reads a value of the writer's schema into a column."""
        writer, reader = self._writer.resolved(writer), self._columns.schema.resolved(reader)
        with self._at(node.path):
            if kind_of(writer) == "union":
                self._branches(writer, lambda branch: self._read_branch(branch, reader, node))
            elif kind_of(reader) == "union":
                self._read_into_union(writer, reader, self._columns.unions[node.index])
            else:
                self._read_same(writer, reader, node)

    def _read_branch(self, branch: Schema, reader: Schema, node: ColumnNode) -> None:
        before = self._here, self._depth, self._path
        try:
            self._read(branch, reader, node)
        except Mismatch as error:
            place, self._depth, self._path = before
            del self.code[place:], self.paths[place // a.WIDTH :]
            self._fail(str(error))

    def _branches(self, branches: list[Schema], emit: Callable[[Schema], None]) -> None:
        """Emit a union: one jump per branch, and what each of them does."""
        self._emit(a.UNION, len(branches))
        jumps = [self._emit(a.JUMP) for _ in branches]
        ends = []
        for jump, branch in zip(jumps, branches, strict=True):
            self._point(jump)
            emit(branch)
            ends.append(self._emit(a.JUMP))
        for end in ends:
            self._point(end)

    def _read_into_union(self, writer: Schema, reader: list[Schema], union: UnionNode) -> None:
        chosen = self._choose(writer, reader)
        target = union.members[chosen]
        if target is None:
            self._put_nulls(union.node)
            return
        if not union.is_struct:
            self._read_member(writer, reader[chosen], target)
            return
        self._emit(a.VALID, union.node.index)
        for member in filter(None, union.members):
            if member is target:
                self._read(writer, reader[chosen], member)
            else:
                self._put_nulls(member)

    def _read_member(self, writer: Schema, branch: Schema, node: ColumnNode) -> None:
        """Read into the only column of a union; `int` and `long` may share one of longs."""
        if branch == "int" and node.type.bit_width == 64 and logical_of(branch) is None:
            branch = "long"
        elif branch == "float" and node.type.bit_width == 64:
            branch = "double"
        self._read(writer, branch, node)

    def _choose(self, writer: Schema, reader: list[Schema]) -> int:
        """Return the reader's branch for a writer's type: the same type, else a promotion."""
        found = [self._columns.schema.resolved(branch) for branch in reader]
        for is_fitting in (self._is_same, self._is_promotable):
            for number, branch in enumerate(found):
                if is_fitting(writer, branch):
                    return number
        names = ", ".join(map(_name, found))
        raise Mismatch(f"the writer has {_name(writer)}, the reader expects one of {names}")

    def _is_same(self, writer: Schema, reader: Schema) -> bool:
        kind = kind_of(writer)
        if kind != kind_of(reader):
            return False
        if kind in _NAMED:
            return _fits_by_name(writer, reader)
        return _logical_fits(writer, reader)

    def _is_promotable(self, writer: Schema, reader: Schema) -> bool:
        return (kind_of(writer), kind_of(reader)) in _PROMOTIONS and _logical_fits(writer, reader)

    def _read_same(self, writer: Schema, reader: Schema, node: ColumnNode) -> None:
        """Read where neither schema is a union."""
        kind = kind_of(writer)
        if not _logical_fits(writer, reader):
            raise self._mismatch(writer, reader, node)
        if kind == kind_of(reader) and kind in _COMPOSED:
            if kind in _NAMED and not _fits_by_name(writer, reader):
                raise self._mismatch(writer, reader, node)
            _COMPOSED[kind](self, writer, reader, node)
        elif (kind, kind_of(reader)) in _PROMOTIONS:
            self._read_plain(kind, reader, node)
        else:
            raise self._mismatch(writer, reader, node)

    def _mismatch(self, writer: Schema, reader: Schema, node: ColumnNode) -> Mismatch:
        where = f"field {node.path}: " if node.path else ""
        return Mismatch(
            f"{where}the writer has {_name(writer)}, the reader expects {_name(reader)}"
        )

    def _read_plain(self, kind: str, reader: Schema, node: ColumnNode) -> None:
        logical = logical_of(reader)
        if logical == "decimal":
            self._emit(a.DECIMAL, node.index, self._bounds(reader, node))
            return
        todo = _PROMOTIONS[kind, kind_of(reader)]
        factor = _FACTORS.get(logical or "", 1) if todo in (a.INT, a.LONG) else 0
        self._emit(todo, node.index, factor)

    def _read_null(self, writer: Schema, reader: Schema, node: ColumnNode) -> None:
        self._emit(a.NULL, node.index)

    def _read_fixed(self, writer: Schema, reader: Schema, node: ColumnNode) -> None:
        size = writer["size"]
        if size != reader["size"]:
            raise self._mismatch(writer, reader, node)
        if logical_of(reader) == "decimal":
            self._emit(a.FIXED_DECIMAL, node.index, self._bounds(reader, node), size)
        else:
            self._emit(a.FIXED_BYTES, node.index, size)

    def _bounds(self, schema: Schema, node: ColumnNode) -> int:
        """Put the least and the greatest value of a decimal into the pool."""
        place = len(self.pool)
        most = 10 ** decimal_of(schema)[0] - 1
        for bound in (-most, most):
            self.pool += bound.to_bytes(node.width, "little", signed=True)
        return place

    def _read_enum(self, writer: Schema, reader: Schema, node: ColumnNode) -> None:
        symbols = {symbol: number for number, symbol in enumerate(reader["symbols"])}
        default = symbols.get(reader.get("default"), -1)
        place = len(self.numbers)
        self.numbers += (symbols.get(symbol, default) for symbol in writer["symbols"])
        self._emit(a.ENUM, node.index, place, len(writer["symbols"]))

    def _read_array(self, writer: Schema, reader: Schema, node: ColumnNode) -> None:
        child = node.children[0]
        self._items(writer["items"], lambda: self._read(writer["items"], reader["items"], child))
        self._emit(a.END_LIST, node.index, child.index)

    def _read_map(self, writer: Schema, reader: Schema, node: ColumnNode) -> None:
        entries = node.children[0]
        key, value = entries.children

        def entry() -> None:
            self._emit(a.VALID, entries.index)
            self._emit(a.TEXT, key.index)
            self._read(writer["values"], reader["values"], value)

        self._items(None, entry)
        self._emit(a.END_LIST, node.index, entries.index)

    def _items(self, item: Schema | None, body: Callable[[], None]) -> None:
        """Emit a loop over the items of all blocks; those of maps have no schema of their own."""
        least = 1 if item is None else self._least_size(item, ())
        self._emit(a.OPEN_BLOCKS)
        top = self._emit(a.NEXT_ITEM, 0, least)
        body()
        self._emit(a.JUMP, top)
        self._point(top)

    def _read_record(self, writer: Schema, reader: Schema, node: ColumnNode) -> None:
        self._emit(a.VALID, node.index)
        targets: dict[str, int] = {}
        for number, field in enumerate(reader["fields"]):
            for name in (field["name"], *field.get("aliases", ())):
                targets.setdefault(name, number)
        missing = dict(enumerate(reader["fields"]))
        for field in writer["fields"]:
            number = targets.get(field["name"], -1)
            if number in missing:
                target = missing.pop(number)
                self._read(field["type"], target["type"], node.children[number])
            else:
                with self._at(f"{node.path}.{field['name']}".lstrip(".")):
                    self._skip(field["type"])
        for number, field in missing.items():
            child = node.children[number]
            if "default" not in field:
                raise Mismatch(
                    f"field {child.path}: the writer does not have it and the reader no default"
                )
            with self._at(child.path):
                self._put_default(field["type"], field["default"], child)

    # ---- what a value does not contain -----------------------------------------------------------
    def _put_nulls(self, node: ColumnNode) -> None:
        for each in node.of_each_row():
            self._emit(a.NULL, each.index)

    def _put_default(self, schema: Schema, default: Any, node: ColumnNode) -> None:
        """Emit a reader's default.

        Raises:
            Mismatch: It is not of the type.
        """
        found = self._columns.schema.resolved(schema)
        kind = kind_of(found)
        try:
            if kind == "union":
                self._put_union_default(found, default, self._columns.unions[node.index])
            elif kind in ("record", "array", "map"):
                self._put_composed_default(kind, found, default, node)
            else:
                self._put_leaf_default(kind, found, default, node)
        except (TypeError, ValueError, AttributeError, OverflowError, struct.error) as error:
            raise Mismatch(
                f"field {node.path}: the default {default!r} is no {_name(found)} ({error})"
            ) from None

    def _put_union_default(self, branches: Schema, default: Any, union: UnionNode) -> None:
        chosen = next(
            (n for n, branch in enumerate(branches) if self._is_default_of(branch, default)), 0
        )
        target = union.members[chosen]
        if target is None:
            self._put_nulls(union.node)
        elif not union.is_struct:
            self._put_default(branches[chosen], default, target)
        else:
            self._emit(a.VALID, union.node.index)
            for member in filter(None, union.members):
                if member is target:
                    self._put_default(branches[chosen], default, member)
                else:
                    self._put_nulls(member)

    def _is_default_of(self, branch: Schema, default: Any) -> bool:
        kind = kind_of(self._columns.schema.resolved(branch))
        is_number = isinstance(default, int | float) and not isinstance(default, bool)
        fits = {
            "null": default is None,
            "boolean": isinstance(default, bool),
            "int": is_number and isinstance(default, int),
            "long": is_number and isinstance(default, int),
            "float": is_number,
            "double": is_number,
            "array": isinstance(default, list),
            "map": isinstance(default, dict),
            "record": isinstance(default, dict),
        }
        return fits.get(kind, isinstance(default, str))

    def _put_composed_default(
        self, kind: str, found: Schema, default: Any, node: ColumnNode
    ) -> None:
        if kind == "record":
            self._emit(a.VALID, node.index)
            for field, child in zip(found["fields"], node.children, strict=True):
                value = default.get(field["name"], field.get("default"))
                self._put_default(field["type"], value, child)
            return
        child = node.children[0]
        if kind == "array":
            for item in list(default):
                self._put_default(found["items"], item, child)
        else:
            key, value = child.children
            for name, item in default.items():
                self._emit(a.VALID, child.index)
                self._put_bytes(name.encode(), key)
                self._put_default(found["values"], item, value)
        self._emit(a.END_LIST, node.index, child.index)

    def _put_leaf_default(self, kind: str, found: Schema, default: Any, node: ColumnNode) -> None:
        if kind == "null":
            self._emit(a.NULL, node.index)
        elif kind == "enum":
            self._emit(a.WORD_OF, node.index, found["symbols"].index(default))
        elif kind == "boolean":
            self._emit(a.WORD_OF, node.index, int(bool(default)))
        elif kind in ("int", "long"):
            word = int(default) * _FACTORS.get(logical_of(found) or "", 1)
            self._emit(a.WORD_OF, node.index, *struct.unpack("<q", struct.pack("<q", word)))
        elif kind == "float":
            bits = struct.unpack("<I", struct.pack("<f", float(default)))
            self._emit(a.WORD_OF, node.index, *bits)
        elif kind == "double":
            bits = struct.unpack("<q", struct.pack("<d", float(default)))
            self._emit(a.WORD_OF, node.index, *bits)
        elif kind == "string":
            self._put_bytes(default.encode(), node)
        else:
            self._put_bytes(_default_bytes(default, found, node), node)

    def _put_bytes(self, value: bytes, node: ColumnNode) -> None:
        self._emit(a.BYTES_OF, node.index, len(self.pool), len(value))
        self.pool += value

    # ---- skipping --------------------------------------------------------------------------------
    def _skip(self, schema: Schema) -> None:
        """Emit what skips a value of the writer's schema."""
        found = self._writer.resolved(schema)
        kind = kind_of(found)
        if kind == "union":
            self._branches(found, self._skip)
        elif kind == "record":
            self._routines.setdefault(found["name"], []).append(self._emit(a.CALL))
        elif kind == "array":
            self._items(found["items"], lambda: self._skip(found["items"]))
        elif kind == "map":
            self._items(None, lambda: self._skip_entry(found))
        elif kind == "fixed":
            self._emit(a.SKIP_SIZE, found["size"])
        elif kind in _SKIPPED_SIZES:
            self._emit(a.SKIP_SIZE, _SKIPPED_SIZES[kind])
        else:
            self._emit(_SKIPPED.get(kind, a.SKIP_BYTES))

    def _skip_entry(self, found: Schema) -> None:
        self._emit(a.SKIP_BYTES)
        self._skip(found["values"])

    def _add_routines(self) -> None:
        """Emit the routines that skip records; a record that contains itself calls its own."""
        places: dict[str, int] = {}
        while True:
            name = next((each for each in self._routines if each not in places), None)
            if name is None:
                break
            places[name] = self._here
            for field in self._writer.named[name]["fields"]:
                self._skip(field["type"])
            self._emit(a.RETURN)
        for name, calls in self._routines.items():
            for call in calls:
                if call < self._here and self.code[call] == a.CALL:
                    self.code[call + a.A] = places[name]

    def _least_size(self, schema: Schema, above: tuple[str, ...]) -> int:
        """Return the least bytes of a value; 0 for what contains itself."""
        found = self._writer.resolved(schema)
        kind = kind_of(found)
        if kind == "record":
            if found["name"] in above or len(above) > _MAX_DEPTH:
                return 0
            inside = (*above, found["name"])
            return min(1, sum(self._least_size(f["type"], inside) for f in found["fields"]))
        if kind == "fixed":
            return min(1, int(found["size"]))
        return 0 if kind == "null" else 1


_COMPOSED: Final[dict[str, Callable[[AvroPrograms, Schema, Schema, ColumnNode], None]]] = {
    "null": AvroPrograms._read_null,
    "record": AvroPrograms._read_record,
    "array": AvroPrograms._read_array,
    "map": AvroPrograms._read_map,
    "enum": AvroPrograms._read_enum,
    "fixed": AvroPrograms._read_fixed,
}


def _default_bytes(default: str, found: Schema, node: ColumnNode) -> bytes:
    """Return a default of bytes or fixed; its characters are bytes."""
    value = default.encode("latin-1")
    if logical_of(found) == "decimal":
        number = int.from_bytes(value, "big", signed=True)
        return number.to_bytes(node.width, "little", signed=True)
    if node.kind == FIXED and len(value) != node.width:
        raise ValueError(f"{len(value)} bytes instead of {node.width}")
    return value


def _logical_fits(writer: Schema, reader: Schema) -> bool:
    """Return whether the logical types agree, or one of the schemas has none."""
    written, read = logical_of(writer), logical_of(reader)
    if written is None or read is None:
        return True
    if written != read:
        return False
    return written != "decimal" or decimal_of(writer) == decimal_of(reader)


def _fits_by_name(writer: Schema, reader: Schema) -> bool:
    """Return whether two named types have the same name, or an alias says so."""
    names = {reader["name"], *reader.get("aliases", ())}
    return writer["name"] in names or _short(writer["name"]) in map(_short, names)


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _name(schema: Schema) -> str:
    """Return a schema as an error shows it."""
    kind = kind_of(schema)
    if kind == "union":
        return "a union"
    if kind in _NAMED:
        return f"{kind} {schema['name']}"
    logical = logical_of(schema)
    if logical == "decimal":
        return "decimal({}, {})".format(*decimal_of(schema))
    return logical or kind
