"""The columns of a JSON Schema, as registries have them for JSON.

    JSON Schema                             Arrow
    boolean, string, null                   bool, string, null
    integer, number                         int64, double
    array                                   list of its items; of tuples, if all have one type
    object with properties                  struct of them
    object with additionalProperties or     map<string, T>
      patternProperties of type T only
    enum, const                             the type of their values
    oneOf, anyOf, several types             the type they have in common: null counts for nothing,
                                            integer and number are a number, the fields of objects
                                            are put together
    allOf, $ref beside other keywords       everything that they say, taken together
    $ref                                    within the document, or to a reference of it

What has no such type, and a schema that contains itself, is refused. Everything may be null. What
only limits values (`required`, `minimum`, `pattern`, `format`, `if`, `not`, …) is not looked at.

Source: JSON Schema, drafts 4 to 2020-12; JSON Pointer, RFC 6901.
"""

import json
from collections.abc import Iterable
from functools import reduce
from typing import Any, Final
from urllib.parse import unquote, urljoin

import pyarrow as pa

from streamlog.decoding.columns import MAX_NODES
from streamlog.decoding.schema_text import SchemaText
from streamlog.errors import InvalidOptionError

__all__ = ["is_json_schema", "type_of_json_schema"]

_ANY: Final = pa.binary()  # while types are put together: nothing is known
_OBJECT: Final = pa.struct([])  # an object without known fields
_SIMPLE: Final[dict[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "string": pa.string(),
    "null": pa.null(),
    "integer": pa.int64(),
    "number": pa.float64(),
}
_NUMBERS: Final = {pa.int64(), pa.float64()}
_DEFINITIONS: Final = ("$defs", "definitions")
_MAX_DEPTH: Final = 100
_HINT: Final = "give the columns you need as a DDL, such as: id BIGINT, name STRING"


def is_json_schema(text: str) -> bool:
    """Return whether a text is a JSON object that is not Spark's JSON form of a schema."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and found.get("type") != "struct"


def type_of_json_schema(text: SchemaText) -> pa.DataType:
    """Return the type of the values that a schema describes.

    Args:
        text: The schema, and those it refers to by the names of references.

    Raises:
        InvalidOptionError: It is no JSON Schema, or has values without a type of columns.
    """
    return _Mapping(text).mapped()


class _Mapping:
    """Maps one schema.

    Attributes:
        _documents: The schemas by their names and ids; that of the schema itself is "".
        _open: The references that are being followed.
    """

    def __init__(self, text: SchemaText) -> None:
        self._documents: dict[str, Any] = {}
        self._open: list[tuple[str, str]] = []
        self._count = 0
        for name, content in (*text.references, ("", text.text)):
            self._add_document(name, content)

    def _add_document(self, name: str, content: str) -> None:
        try:
            found = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise InvalidOptionError(
                "invalid JSON Schema", got=f"{name or 'the schema'}: {type(error).__name__}"
            ) from None
        self._documents[name] = found
        own = _id_of(found)
        if own:
            self._documents.setdefault(own, found)
        for definitions in _DEFINITIONS:
            named = found.get(definitions) if isinstance(found, dict) else None
            for each in named.values() if isinstance(named, dict) else ():
                if _id_of(each):
                    self._documents.setdefault(urljoin(own, _id_of(each)), each)

    def mapped(self) -> pa.DataType:
        found = self._type(self._documents[""], "", "")
        if pa.types.is_null(found):
            raise _refusal("nothing but null", "")
        self._check(found, "")
        return found

    def _check(self, kind: pa.DataType, path: str) -> None:
        """Raise if a part of a type is not known."""
        if kind == _ANY:
            raise _refusal("values of any type", path)
        if kind == _OBJECT:
            raise _refusal("an object without known fields", path)
        if pa.types.is_struct(kind):
            for each in kind:
                self._check(each.type, _below(path, each.name))
        elif pa.types.is_list(kind):
            self._check(kind.value_type, f"{path}[]")
        elif pa.types.is_map(kind):
            self._check(kind.item_type, f"{path}[]")

    # ---- one schema --------------------------------------------------------------------------
    def _type(self, schema: Any, document: str, path: str, depth: int = 0) -> pa.DataType:
        self._count += 1
        if self._count > MAX_NODES or depth > _MAX_DEPTH:
            raise InvalidOptionError(
                "the JSON Schema is too large or too deep for columns",
                got=f"more than {MAX_NODES} schemas or {_MAX_DEPTH} levels",
                hint=_HINT,
            )
        if schema is True:
            return _ANY
        if not isinstance(schema, dict):
            raise _refusal(f"{json.dumps(schema)[:40]} instead of a schema", path)
        below = depth + 1
        parts = [self._own_type(schema, document, path, below)]
        if "$ref" in schema:
            parts.append(self._referred(schema["$ref"], document, path, below))
        parts += [self._type(each, document, path, below) for each in _list(schema, "allOf", path)]
        for name in ("oneOf", "anyOf"):
            branches = _list(schema, name, path)
            if branches:
                kinds = [self._type(each, document, path, below) for each in branches]
                parts.append(_union(kinds, path))
        return reduce(lambda one, other: _both(one, other, path), parts)

    def _own_type(self, schema: dict[str, Any], document: str, path: str, depth: int) -> Any:
        """Return what the keywords of a schema itself say."""
        names = schema.get("type")
        if names is None:
            if schema.keys() & {"properties", "additionalProperties", "patternProperties"}:
                names = "object"
            elif schema.keys() & {"items", "prefixItems"}:
                names = "array"
            elif "enum" in schema or "const" in schema:
                values = _list(schema, "enum", path) or [schema.get("const")]
                return _union([_type_of_value(value) for value in values], path)
            else:
                return _ANY
        kinds = []
        for name in names if isinstance(names, list) else [names]:
            if name == "object":
                kinds.append(self._object(schema, document, path, depth))
            elif name == "array":
                kinds.append(self._array(schema, document, path, depth))
            elif isinstance(name, str) and name in _SIMPLE:
                kinds.append(_SIMPLE[name])
            else:
                raise _refusal(f"the type {json.dumps(name)[:40]}", path)
        return _union(kinds, path)

    def _object(self, schema: dict[str, Any], document: str, path: str, depth: int) -> pa.DataType:
        fields = _mapping(schema, "properties", path)
        if fields:
            found = [
                (name, self._type(each, document, _below(path, name), depth))
                for name, each in fields.items()
            ]
            return pa.struct(found)
        others = [*_mapping(schema, "patternProperties", path).values()]
        if not isinstance(schema.get("additionalProperties", True), bool):
            others.append(schema["additionalProperties"])
        if not others:
            return _OBJECT
        kinds = [self._type(each, document, f"{path}[]", depth) for each in others]
        return pa.map_(pa.string(), _union(kinds, f"{path}[]"))

    def _array(self, schema: dict[str, Any], document: str, path: str, depth: int) -> pa.DataType:
        rest = schema.get("items", True)
        items = _list(schema, "prefixItems", path)
        if isinstance(rest, list):  # before draft 2020-12
            items, rest = rest, schema.get("additionalItems", True)
        if not isinstance(rest, bool) or (rest and not items):
            items = [*items, rest]
        if not items:
            return pa.list_(_ANY)
        kinds = [self._type(each, document, f"{path}[]", depth) for each in items]
        return pa.list_(_union(kinds, f"{path}[]"))

    # ---- references --------------------------------------------------------------------------
    def _referred(self, reference: Any, document: str, path: str, depth: int) -> pa.DataType:
        name, _, fragment = str(reference).partition("#")
        target = self._document(name, document, path)
        if (target, fragment) in self._open:
            raise _refusal(f"a schema that contains itself, {reference!r},", path)
        self._open.append((target, fragment))
        found = self._type(self._at(target, fragment, path), target, path, depth)
        self._open.pop()
        return found

    def _document(self, name: str, document: str, path: str) -> str:
        """Return the key of the document that a reference names."""
        if not name:
            return document
        base = _id_of(self._documents[document]) or document
        for each in (name, urljoin(base, name)):
            if each in self._documents:
                return each
        raise _refusal(f"an unknown reference, {name!r},", path)

    def _at(self, document: str, fragment: str, path: str) -> Any:
        """Return the schema at a JSON pointer or an anchor."""
        found = self._documents[document]
        if fragment and not fragment.startswith("/"):
            named = [_mapping(found, each, path) for each in _DEFINITIONS]
            for each in (one for definitions in named for one in definitions.values()):
                if isinstance(each, dict) and fragment in (each.get("$anchor"), _id_of(each)[1:]):
                    return each
            raise _refusal(f"a reference to nothing, #{fragment},", path)
        for token in fragment.split("/")[1:]:
            name = unquote(token).replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict) and name in found:
                found = found[name]
            elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
                found = found[int(name)]
            else:
                raise _refusal(f"a reference to nothing, #{fragment},", path)
        return found


# ---- types put together --------------------------------------------------------------------------
def _union(kinds: Iterable[pa.DataType], path: str) -> pa.DataType:
    """Return the type of values that have one of some types."""
    return reduce(lambda one, other: _either(one, other, path), kinds, pa.null())


def _either(one: pa.DataType, other: pa.DataType, path: str) -> pa.DataType:
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if _ANY in (one, other):
        return _ANY
    if {one, other} == _NUMBERS:
        return pa.float64()
    return _put_together(one, other, path, _either)


def _both(one: pa.DataType, other: pa.DataType, path: str) -> pa.DataType:
    """Return the type of values that have two types at once."""
    if one == other or other == _ANY:
        return one
    if one == _ANY:
        return other
    if {one, other} == _NUMBERS:
        return pa.int64()
    for this, that in ((one, other), (other, one)):
        if pa.types.is_map(this) and pa.types.is_struct(that):
            return this if that == _OBJECT else that
    return _put_together(one, other, path, _both)


def _put_together(one: pa.DataType, other: pa.DataType, path: str, join: Any) -> pa.DataType:
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        fields = {each.name: each.type for each in one}
        for each in other:
            known = fields.get(each.name)
            fields[each.name] = (
                each.type if known is None else join(known, each.type, _below(path, each.name))
            )
        return pa.struct(list(fields.items()))
    if pa.types.is_list(one) and pa.types.is_list(other):
        return pa.list_(join(one.value_type, other.value_type, f"{path}[]"))
    if pa.types.is_map(one) and pa.types.is_map(other):
        return pa.map_(pa.string(), join(one.item_type, other.item_type, f"{path}[]"))
    raise _refusal(f"values that are either {_shown(one)} or {_shown(other)}", path)


def _type_of_value(value: Any) -> pa.DataType:
    if value is None:
        return pa.null()
    for kind, found in ((bool, pa.bool_()), (str, pa.string()), (int, pa.int64())):
        if isinstance(value, kind):
            return found
    return pa.float64() if isinstance(value, float) else _ANY


# ---- parts of a schema ---------------------------------------------------------------------------
def _id_of(schema: Any) -> str:
    found = schema.get("$id", schema.get("id")) if isinstance(schema, dict) else None
    return found if isinstance(found, str) else ""


def _list(schema: dict[str, Any], name: str, path: str) -> list[Any]:
    found = schema.get(name, [])
    if not isinstance(found, list):
        raise _refusal(f"{name} without a list", path)
    return found


def _mapping(schema: Any, name: str, path: str) -> dict[str, Any]:
    found = schema.get(name, {}) if isinstance(schema, dict) else {}
    if not isinstance(found, dict):
        raise _refusal(f"{name} without an object", path)
    return found


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _shown(kind: pa.DataType) -> str:
    for name, tells in (
        ("an object", pa.types.is_struct),
        ("an object", pa.types.is_map),
        ("an array", pa.types.is_list),
    ):
        if tells(kind):
            return name
    names = {known: name for name, known in _SIMPLE.items()}
    return f"{'an' if kind == pa.int64() else 'a'} {names[kind]}"


def _refusal(what: str, path: str) -> InvalidOptionError:
    where = f"field {path}" if path else "the value"
    return InvalidOptionError(
        "the JSON Schema has no form as columns", got=f"{what} for {where}", hint=_HINT
    )
