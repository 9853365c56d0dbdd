"""The columns of a Protobuf message, and the tables by which a kernel fills them.

    Protobuf                                Arrow
    bool, double, float                     bool, double, float
    int32, sint32, sfixed32                 int32
    int64, sint64, sfixed64                 int64
    uint32, fixed32                         int64
    uint64, fixed64                         decimal128(20, 0)
    string, bytes                           string, binary
    enum                                    string: the name, or the number if it has none
    message, group, repeated, map           struct, struct, list, map
    oneof                                   its fields, all but one of them null
    Timestamp                               timestamp(us, UTC)
    Duration                                duration(us)
    DoubleValue, … (wrappers)               the type they wrap, nullable
    a message that contains itself          binary: its bytes

An absent field is null if the schema can tell that it is absent, otherwise the type's default.
All of these are types that Spark has.
"""

import struct
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamlog.decoding import protobuf_layout as p
from streamlog.decoding.column_layout import BYTES, LIST, STRUCT, WORD
from streamlog.decoding.columns import ColumnNode, ColumnTree, Meaning

__all__ = ["ProtobufColumns"]

_UNSIGNED_64: Final = pa.decimal128(20, 0)
# By FieldDescriptor.TYPE_*: how it is read, how it is stored, its type, what its word means.
_SCALARS: Final = {
    1: (p.FIXED64, WORD, pa.float64(), Meaning.PLAIN),
    2: (p.FIXED32, WORD, pa.float32(), Meaning.FLOAT_BITS),
    3: (p.INT64, WORD, pa.int64(), Meaning.PLAIN),
    4: (p.INT64, WORD, _UNSIGNED_64, Meaning.UNSIGNED),
    5: (p.INT32, WORD, pa.int32(), Meaning.PLAIN),
    6: (p.FIXED64, WORD, _UNSIGNED_64, Meaning.UNSIGNED),
    7: (p.FIXED32, WORD, pa.int64(), Meaning.PLAIN),
    8: (p.BOOL, WORD, pa.bool_(), Meaning.PLAIN),
    9: (p.STRING, BYTES, pa.string(), Meaning.PLAIN),
    10: (p.RAW_GROUP, BYTES, pa.binary(), Meaning.PLAIN),  # a message inside itself, as 11 is
    11: (p.RAW_BYTES, BYTES, pa.binary(), Meaning.PLAIN),
    12: (p.RAW_BYTES, BYTES, pa.binary(), Meaning.PLAIN),
    13: (p.UINT32, WORD, pa.int64(), Meaning.PLAIN),
    14: (p.INT32, WORD, pa.string(), Meaning.NUMBERED_SYMBOL),
    15: (p.SFIXED32, WORD, pa.int32(), Meaning.PLAIN),
    16: (p.FIXED64, WORD, pa.int64(), Meaning.PLAIN),
    17: (p.SINT32, WORD, pa.int32(), Meaning.PLAIN),
    18: (p.SINT64, WORD, pa.int64(), Meaning.PLAIN),
}
_DOUBLE: Final = 1
_FLOAT: Final = 2
_GROUP: Final = 10  # also a message with the feature DELIMITED of editions
_MESSAGES: Final = (_GROUP, 11)
_TIMES: Final = {
    "google.protobuf.Timestamp": (p.TIMESTAMP, Meaning.TIMESTAMP, pa.timestamp("us", tz="UTC")),
    "google.protobuf.Duration": (p.DURATION, Meaning.DURATION, pa.duration("us")),
}
_WRAPPERS: Final = {
    f"google.protobuf.{name}Value"
    for name in (
        *("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes"),
    )
}


class ProtobufColumns:
    """The columns of a message and their tables.

    Args:
        message: The descriptor of the message.

    Attributes:
        tree: The columns.
        names: The full name of the message of each table.

    Raises:
        InvalidOptionError: The message has too many fields.
    """

    def __init__(self, message: Any) -> None:
        self.tree = ColumnTree()
        self.names: list[str] = []
        self._tables: list[list[int]] = []
        self._fields: list[list[list[int]]] = []  # of each table
        self._begins: list[list[list[int]]] = []  # of each table that is a value or an element
        self._members: list[int] = []
        self._pool = bytearray(8)
        self._open: list[str] = []
        root = self.tree.add(STRUCT, "", None)
        self._add_message(message, root, [[root.index, p.PUT_WORD, 0, 0]])

    def arrays(self) -> tuple[Any, ...]:
        """Return TABLES, FIELDS, BEGINS, MEMBERS and the pool of bytes."""
        tables: list[list[int]] = []
        fields: list[list[int]] = []
        begins: list[list[int]] = []
        for row, own, begun in zip(self._tables, self._fields, self._begins, strict=True):
            own = sorted(own)
            row[p.FIRST_FIELD], row[p.FIELDS_END] = len(fields), len(fields) + len(own)
            row[p.FIRST_BEGIN], row[p.BEGINS_END] = len(begins), len(begins) + len(begun)
            tables.append(row)
            fields += own
            begins += begun
        return (
            _matrix(tables, p.TABLE_WIDTH),
            _matrix(fields, p.FIELD_WIDTH),
            _matrix(begins, p.BEGIN_WIDTH),
            np.array(self._members, np.int64),
            np.frombuffer(bytes(self._pool), np.uint8),
        )

    def _add_message(self, message: Any, node: ColumnNode, begins: list[list[int]]) -> int:
        """Add the fields of a message to its struct; return its table.

        Args:
            message: Its descriptor.
            node: The struct.
            begins: The cells that an instance begins with, to which those of the fields are added:
                its own for an element, those of the message around it otherwise.
        """
        table = len(self._tables)
        is_own = not any(begins is each for each in self._begins)
        self.names.append(message.full_name)
        self._tables.append([0] * p.TABLE_WIDTH)
        self._fields.append([])
        self._begins.append(begins if is_own else [])
        self._open.append(message.full_name)
        columns = {}
        for field in message.fields:
            columns[field.name] = self._add_field(field, node, table, begins)
        self._add_oneofs(message, table, columns)
        self._open.pop()
        self._finish_struct(message, node, table)
        return table

    def _finish_struct(self, message: Any, node: ColumnNode, table: int) -> None:
        name = message.full_name
        fields = [
            (field.name, child.type)
            for field, child in zip(message.fields, node.children, strict=True)
        ]
        if name in _TIMES:
            check, node.meaning, node.type = _TIMES[name]
            self._tables[table][p.CHECK] = check
            self._tables[table][p.CHECKED_NODE] = node.children[0].index
        elif name in _WRAPPERS:
            node.meaning, node.type = Meaning.WRAPPER, node.children[0].type
        else:
            node.type = pa.struct(fields)

    def _add_oneofs(self, message: Any, table: int, columns: dict[str, ColumnNode]) -> None:
        for oneof in message.oneofs:
            first = len(self._members)
            for field in oneof.fields:
                node = columns[field.name]
                self._members.append(node.index << 1 | (node.kind == STRUCT))
            for row in self._fields[table]:
                if row[p.NUMBER] in {field.number for field in oneof.fields}:
                    row[p.FIRST_MEMBER], row[p.MEMBERS_END] = first, len(self._members)

    def _add_field(
        self, field: Any, above: ColumnNode, table: int, begins: list[list[int]]
    ) -> ColumnNode:
        path = f"{above.path}.{field.name}".lstrip(".")
        if field.is_repeated:
            return self._add_repeated(field, path, above, table, begins)
        if self._is_struct(field):
            node = self.tree.add(STRUCT, path, above)
            # The value of an entry is always there, even if its bytes are not.
            mode = p.PUT_WORD if _is_entry(field.containing_type) else p.PUT_NULL
            begins.append([node.index, mode, 0, 0])
            self._put_row(field, _kind_of(field), node, table, inside=(field.message_type, begins))
            return node
        kind, node = self._add_scalar(field, path, above)
        begins.append(self._begin_of(field, node))
        self._put_row(field, kind, node, table)
        return node

    def _add_repeated(
        self, field: Any, path: str, above: ColumnNode, table: int, begins: list[list[int]]
    ) -> ColumnNode:
        node = self.tree.add(LIST, path, above)
        if self._is_struct(field):
            child = self.tree.add(STRUCT, f"{path}[]", node)
            own = [[child.index, p.PUT_WORD, 0, 0]]
            inside = (field.message_type, own)
            self._put_row(field, _kind_of(field), child, table, above=node, inside=inside)
            if _is_entry(field.message_type):
                key, value = (each.type for each in child.children)
                child.type = pa.struct([pa.field("key", key, nullable=False), ("value", value)])
                node.type = pa.map_(key, value)
            else:
                node.type = pa.list_(child.type)
        else:
            kind, child = self._add_scalar(field, f"{path}[]", node)
            self._put_row(field, kind, child, table, above=node)
            node.type = pa.list_(child.type)
        begins.append([node.index, p.PUT_LIST, child.index, 0])
        return node

    def _put_row(
        self,
        field: Any,
        kind: int,
        node: ColumnNode,
        table: int,
        *,
        above: ColumnNode | None = None,
        inside: tuple[Any, list[list[int]]] | None = None,
    ) -> None:
        row = [field.number, kind, node.index, -1 if above is None else above.index, 0, 0, 0]
        self._fields[table].append(row)
        if inside is not None:
            message, begins = inside
            row[p.TABLE] = self._add_message(message, node, begins)

    def _is_struct(self, field: Any) -> bool:
        """Return whether a field becomes a struct; one that contains itself stays as bytes."""
        return field.type in _MESSAGES and field.message_type.full_name not in self._open

    def _add_scalar(self, field: Any, path: str, above: ColumnNode) -> tuple[int, ColumnNode]:
        kind, storage, arrow, meaning = _SCALARS[field.type]
        symbols = {}
        if meaning is Meaning.NUMBERED_SYMBOL:
            for value in reversed(field.enum_type.values):  # of aliases, the first name counts
                symbols[value.number] = value.name
        node = self.tree.add(storage, path, above, type=arrow, meaning=meaning, symbols=symbols)
        return kind, node

    def _begin_of(self, field: Any, node: ColumnNode) -> list[int]:
        if field.has_presence and not _is_entry(field.containing_type):
            return [node.index, p.PUT_NULL, 0, 0]
        default = b"" if field.type in _MESSAGES else field.default_value
        if node.kind == BYTES:
            value = default.encode() if isinstance(default, str) else default
            place = len(self._pool)
            self._pool += value
            return [node.index, p.PUT_BYTES, place, len(value)]
        return [node.index, p.PUT_WORD, _word_of(default, field.type), 0]


def _kind_of(field: Any) -> int:
    """Return how a field is read that becomes a struct."""
    return p.GROUP if field.type == _GROUP else p.MESSAGE


def _is_entry(message: Any) -> bool:
    return bool(message.GetOptions().map_entry)


def _word_of(default: Any, kind: int) -> int:
    if kind == _DOUBLE:
        return int(struct.unpack("<q", struct.pack("<d", default))[0])
    if kind == _FLOAT:
        return int(struct.unpack("<I", struct.pack("<f", default))[0])
    return int(default)


def _matrix(rows: list[list[int]], width: int) -> NDArray[np.int64]:
    return np.array(rows, np.int64).reshape(-1, width)
