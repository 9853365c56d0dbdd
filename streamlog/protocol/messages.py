"""Kafka's message codec: one declaration encodes and decodes every version of a message.

A declaration follows Kafka's message JSON: types and version ranges are spelled as there.

    HEADER = Message(
        "RequestHeader",
        Field("requestApiKey", "int16"),
        Field("requestApiVersion", "int16"),
        Field("correlationId", "int32"),
        Field("clientId", "string", "1+", nullable="1+", default="", flexible="none"),
        versions="1-2",
        flexible="2+",
    )
    HEADER.encode({"requestApiKey": 18, "requestApiVersion": 4, "correlationId": 7}, 2)

Fields follow one another without padding; numbers are big-endian. In a *flexible* version (KIP-482)
lengths of strings, bytes and arrays are unsigned varints of the length plus one, where 0 means
null, and each structure ends with its tagged fields. In other versions lengths are int16 for
strings and int32 otherwise, where a negative length means null.

Values are dicts by field name; a uuid is Kafka's text of 22 characters. Input is never trusted:
each read stays within the bytes there are, and nothing is allocated for an array before the bytes
that its elements need at least are known to be there.

Source: org.apache.kafka.message.MessageGenerator, org.apache.kafka.common.protocol.Readable.
"""

import base64
import binascii
import itertools
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from streamlog.errors import CorruptRecordError, InvalidRequestError

__all__ = [
    "Decoded",
    "Deferred",
    "Field",
    "Message",
    "read_unsigned_varint",
    "write_unsigned_varint",
]

_NUMBERS: Final = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
}
_UUID_SIZE: Final = 16
_VARINT_MAX_SIZE: Final = 5
_MAX_VERSION: Final = 2**15 - 1
_ABSENT: Final = object()  # of a default, or of a value


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a message or of a structure in it.

    Attributes:
        name: Its name in Kafka's JSON, the key in a dict of values.
        type: A number (`bool`, `int8` to `int64`, `uint16`, `uint32`, `float64`), `uuid`, `string`,
            `bytes`, `records`, or the name of a structure; after `[]` it is an array of these.
        versions: The versions that have it: `0+`, `1-3`, `2` or `none`.
        fields: The fields of the structure.
        nullable: The versions in which it may be null.
        tag: Its tag; None for a field without a tag.
        default: The value that is encoded where the caller gives none, and that a tagged field has
            without being encoded.
        flexible: The versions in which its length is a varint, where it differs from its message.
    """

    name: str
    type: str
    versions: str = "0+"
    fields: "tuple[Field, ...]" = ()
    nullable: str = "none"
    tag: int | None = None
    default: Any = _ABSENT
    flexible: str | None = None


class Decoded(NamedTuple):
    """A decoded message.

    Attributes:
        values: Values by field name, in the order of the fields. Fields that the version does not
            have are missing, and so are tagged fields that were not encoded, unless the message
            fills defaults.
        end: The position after the message.
    """

    values: dict[str, Any]
    end: int


class Deferred:
    """Bytes that are sent from elsewhere: only their length is encoded, and their place noted.

    Attributes:
        size: How many bytes there are.
        position: Where they belong in the encoded message; set by `Message.encode`.
    """

    __slots__ = ("position", "size")

    def __init__(self, size: int) -> None:
        self.size, self.position = size, -1


class Message:
    """A message that Kafka's protocol declares.

    Args:
        name: Its name, for errors.
        fields: Its fields, in order.
        versions: The versions that are declared.
        flexible: Those with varint lengths and tagged fields.
        text_errors: How UTF-8 is decoded: `strict`, or `replace` as Kafka's own decoder does.
        fills_defaults: Whether a decoded value has all fields: defaults for those that its version
            lacks, or that were not encoded.
        most_elements: How many elements the arrays of a message may have together: an element takes
            up to a hundred times more memory than bytes. None: as many as its bytes can hold. With
            a limit, decode in one thread at a time.
    """

    __slots__ = (
        "_codecs",
        "_count",
        "_fills_defaults",
        "_flexible",
        "_text_errors",
        "_versions",
        "fields",
        "name",
    )

    def __init__(
        self,
        name: str,
        *fields: Field,
        versions: str = "0",
        flexible: str = "none",
        text_errors: str = "strict",
        fills_defaults: bool = False,
        most_elements: int | None = None,
    ) -> None:
        self.name, self.fields = name, fields
        self._count = None if most_elements is None else _Count(most_elements)
        self._versions, self._flexible = _range_of(versions), _range_of(flexible)
        self._text_errors, self._fills_defaults = text_errors, fills_defaults
        self._codecs: dict[int, _Codec] = {}

    def has_version(self, version: int) -> bool:
        """Return whether this version is declared."""
        return version in self._versions

    def is_flexible(self, version: int) -> bool:
        """Return whether a version has varint lengths and tagged fields."""
        return version in self._flexible

    @property
    def versions(self) -> range:
        """The declared versions."""
        return self._versions

    def decode(self, data: bytes, version: int, at: int = 0) -> Decoded:
        """Decode the message that starts at `at`; bytes after it are left to the caller.

        Raises:
            CorruptRecordError: The version is unknown, or the bytes do not hold the message.
        """
        if version not in self._versions:
            raise CorruptRecordError(
                f"{self.name}: unknown version", got=version, expected=_text_of(self._versions)
            )
        if self._count is not None:
            self._count.seen = 0
        return Decoded(*self._codec(version).read(data, at, len(data)))

    def encode(self, values: Mapping[str, Any], version: int) -> bytes:
        """Encode a message; fields that the version does not have are not written.

        Raises:
            InvalidRequestError: The version is unknown, or a value is missing, null where it must
                not be, or outside its type.
        """
        if version not in self._versions:
            raise InvalidRequestError(
                f"{self.name}: unknown version", got=version, expected=_text_of(self._versions)
            )
        out = bytearray()
        self._codec(version).write(out, values)
        return bytes(out)

    def _codec(self, version: int) -> "_Codec":
        known = self._codecs.get(version)
        if known is None:
            rules = _Rules(
                version,
                self._text_errors,
                fills_defaults=self._fills_defaults,
                is_flexible=version in self._flexible,
                counted=self._count,
            )
            known = self._codecs[version] = _struct(self.name, self.fields, rules)
        return known


# ---- building codecs ----------------------------------------------------------------------------
class _Codec(NamedTuple):
    """How values of one type are read and written.

    Attributes:
        least: The bytes that a value takes at least.
        read: From data, position and end to the value and the position after it.
        write: Appends a value.
        code: The number's code in a format of `struct`; empty for other types.
    """

    least: int
    read: Callable[[bytes, int, int], tuple[Any, int]]
    write: Callable[[bytearray, Any], None]
    code: str = ""


class _Run(NamedTuple):
    """Neighbouring fields that are read together: numbers by `form`, any other field alone."""

    names: list[str]
    form: struct.Struct | None
    read: Callable[[bytes, int, int], tuple[Any, int]]


class _Count:
    """Counts the elements of arrays while a message is decoded."""

    __slots__ = ("limit", "seen")

    def __init__(self, limit: int) -> None:
        self.limit, self.seen = limit, 0

    def add(self, path: str, at: int, count: int) -> None:
        self.seen += count
        if self.seen > self.limit:
            raise _malformed(path, at, f"{self.seen} elements", f"at most {self.limit}")


class _Rules(NamedTuple):
    """What holds for all fields of a message in one version."""

    version: int
    text_errors: str
    fills_defaults: bool
    is_flexible: bool
    counted: _Count | None = None

    def of(self, field: Field) -> "_Rules":
        if field.flexible is None:
            return self
        return self._replace(is_flexible=self.version in _range_of(field.flexible))


def _range_of(text: str) -> range:
    if text == "none":
        return range(0)
    if text.endswith("+"):
        return range(int(text[:-1]), _MAX_VERSION + 1)
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def _text_of(versions: range) -> str:
    return f"{versions.start} to {versions.stop - 1}"


def _field(path: str, field: Field, rules: _Rules) -> _Codec:
    path, rules = f"{path}.{field.name}", rules.of(field)
    is_nullable = rules.version in _range_of(field.nullable)
    if field.type.startswith("[]"):
        kind = field.type[2:]
        if kind in _NUMBERS:
            return _numbers(path, _NUMBERS[kind], rules, is_nullable=is_nullable)
        element = Field(field.name, kind, fields=field.fields)
        return _array(path, _single(path, element, rules), rules, is_nullable=is_nullable)
    single = _single(path, field, rules, is_nullable=is_nullable)
    if field.fields and is_nullable:
        return _nullable_struct(single, is_tagged=field.tag is not None)
    return single


def _single(path: str, field: Field, rules: _Rules, *, is_nullable: bool = False) -> _Codec:
    if field.fields:
        return _struct(path, field.fields, rules)
    if field.type in _NUMBERS:
        return _number(path, _NUMBERS[field.type])
    if field.type == "uuid":
        return _uuid(path)
    if field.type == "string":
        return _string(path, rules, is_nullable=is_nullable)
    assert field.type in ("bytes", "records"), f"{path}: unknown type {field.type}"
    return _bytes(path, rules, is_nullable=is_nullable)


_Plain = tuple[str, "_Codec", Any]  # a field without a tag: name, codec, default
_Tagged = Mapping[int, _Plain]


def _struct(path: str, fields: Sequence[Field], rules: _Rules) -> _Codec:
    present = [field for field in fields if rules.version in _range_of(field.versions)]
    plain = [
        (field.name, _field(path, field, rules), field.default)
        for field in present
        if field.tag is None
    ]
    tagged = {
        field.tag: (field.name, _field(path, field, rules), field.default)
        for field in sorted(present, key=lambda each: each.tag or 0)
        if field.tag is not None
    }
    assert rules.is_flexible or not tagged, f"{path}: tagged fields need a flexible version"
    names = {name for name, _, _ in plain}
    absent = {each.name: each.default for each in fields if each.name not in names}
    return _Codec(
        sum(codec.least for _, codec, _ in plain) + rules.is_flexible,
        _struct_reader(path, plain, tagged, rules, absent if rules.fills_defaults else {}),
        _struct_writer(path, plain, tagged, rules),
    )


def _struct_reader(
    path: str, plain: Sequence[_Plain], tagged: _Tagged, rules: _Rules, absent: dict[str, Any]
) -> Callable[[bytes, int, int], tuple[dict[str, Any], int]]:
    runs, is_flexible = _runs(plain), rules.is_flexible

    def read(data: bytes, at: int, end: int) -> tuple[dict[str, Any], int]:
        values = absent.copy()
        for names, form, read_one in runs:
            if form is None:
                values[names[0]], at = read_one(data, at, end)
            else:
                stop = at + form.size
                if stop > end:
                    _end(f"{path}.{names[0]}", at, form.size, end)  # which raises
                values.update(zip(names, form.unpack_from(data, at), strict=True))
                at = stop
        if is_flexible:
            if at < end and data[at] == 0:  # no tagged field, as usual
                return values, at + 1
            at = _read_tagged(path, tagged, values, data, at, end)
        return values, at

    return read


def _struct_writer(
    path: str, plain: Sequence[_Plain], tagged: _Tagged, rules: _Rules
) -> Callable[[bytearray, Mapping[str, Any]], None]:
    by_name = {each[0]: each for each in plain}
    runs = [_written(run, [by_name[name] for name in run.names]) for run in _runs(plain)]
    is_flexible = rules.is_flexible

    def write(out: bytearray, values: Mapping[str, Any]) -> None:
        get = values.get
        for form, run in runs:
            if form is not None:
                try:
                    out += form.pack(*[get(name, default) for name, _, default in run])
                    continue
                except struct.error:
                    pass  # the loop below says which value is wrong
            for name, codec, default in run:
                value = get(name, default)
                if value is _ABSENT:
                    raise InvalidRequestError(f"{path}.{name}: value is missing")
                codec.write(out, value)
        if is_flexible:
            if tagged:
                _write_tagged(tagged, values, out)
            else:
                out.append(0)

    return write


def _written(run: _Run, fields: list[_Plain]) -> tuple[struct.Struct | None, list[_Plain]]:
    """Return the format that writes a run at once; None where fields are written one by one."""
    is_told = all(codec.code != "?" or default is not _ABSENT for _, codec, default in fields)
    return (run.form if is_told else None), fields  # any object packs as a bool, also _ABSENT


def _runs(plain: Sequence[_Plain]) -> list[_Run]:
    """Join neighbouring numbers, so that one call of `struct` reads them all."""
    runs: list[_Run] = []
    for is_number, group in itertools.groupby(plain, key=lambda each: each[1].code != ""):
        fields = list(group)
        if is_number:
            form = struct.Struct(">" + "".join(codec.code for _, codec, _ in fields))
            runs.append(_Run([name for name, _, _ in fields], form, fields[0][1].read))
        else:
            runs += [_Run([name], None, codec.read) for name, codec, _ in fields]
    return runs


def _read_tagged(
    path: str,
    tagged: Mapping[int, tuple[str, _Codec, Any]],
    values: dict[str, Any],
    data: bytes,
    at: int,
    end: int,
) -> int:
    """Read tagged fields into `values`; unknown ones are skipped. Return where they end."""
    count, at = read_unsigned_varint(data, at, end)
    for _ in range(count):  # each turn reads two bytes or more, or raises
        tag, at = read_unsigned_varint(data, at, end)
        size, at = read_unsigned_varint(data, at, end)
        field_end = _end(path, at, size, end)
        if tag in tagged:
            name, codec, _ = tagged[tag]
            values[name], at = codec.read(data, at, field_end)
            if at != field_end:
                raise _malformed(f"{path}.{name}", at, f"{field_end - at} bytes left", "none")
        at = field_end
    return at


def _write_tagged(
    tagged: Mapping[int, tuple[str, _Codec, Any]], values: Mapping[str, Any], out: bytearray
) -> None:
    given = []
    for tag, (name, codec, default) in tagged.items():
        value = values.get(name, default)
        # A default is what a reader assumes without the field; Kafka never writes it.
        if value is not default and value is not _ABSENT and value != default:
            body = bytearray()
            codec.write(body, value)
            given.append((tag, body))
    write_unsigned_varint(out, len(given))
    for tag, body in given:
        write_unsigned_varint(out, tag)
        write_unsigned_varint(out, len(body))
        out += body


def _nullable_struct(codec: _Codec, *, is_tagged: bool) -> _Codec:
    """Return a codec with a byte before the structure; null: negative, in a tagged field 0."""
    null = b"\x00" if is_tagged else b"\xff"

    def read(data: bytes, at: int, end: int) -> tuple[Any, int]:
        if at >= end:
            return codec.read(data, at, end)  # which raises
        is_null = data[at] == 0 if is_tagged else data[at] >= 0x80
        return (None, at + 1) if is_null else codec.read(data, at + 1, end)

    def write(out: bytearray, value: Any) -> None:
        out += null if value is None else b"\x01"
        if value is not None:
            codec.write(out, value)

    return _Codec(1, read, write)


# ---- single values ------------------------------------------------------------------------------
def _number(path: str, code: str) -> _Codec:
    form = struct.Struct(f">{code}")
    size, unpack = form.size, form.unpack_from

    def read(data: bytes, at: int, end: int) -> tuple[Any, int]:
        _end(path, at, size, end)
        return unpack(data, at)[0], at + size

    def write(out: bytearray, value: Any) -> None:
        try:
            out += form.pack(value)
        except struct.error as error:
            raise InvalidRequestError(f"{path}: {error}", got=value) from error

    return _Codec(size, read, write, code)


def _uuid(path: str) -> _Codec:
    def read(data: bytes, at: int, end: int) -> tuple[str, int]:
        stop = _end(path, at, _UUID_SIZE, end)
        return base64.urlsafe_b64encode(data[at:stop]).decode("ascii").rstrip("="), stop

    def write(out: bytearray, value: Any) -> None:
        try:
            raw = base64.urlsafe_b64decode(f"{value}==")
        except (binascii.Error, ValueError) as error:
            raise InvalidRequestError(f"{path}: not a uuid", got=value) from error
        if len(raw) != _UUID_SIZE:
            raise InvalidRequestError(f"{path}: not a uuid", got=value)
        out += raw

    return _Codec(_UUID_SIZE, read, write)


def _string(path: str, rules: _Rules, *, is_nullable: bool) -> _Codec:
    size = _size(path, "h", rules, is_nullable=is_nullable)
    errors = rules.text_errors

    def read(data: bytes, at: int, end: int) -> tuple[str | None, int]:
        length, at = size.read(data, at, end)
        if length < 0:
            return None, at
        stop = _end(path, at, length, end)
        try:
            return data[at:stop].decode("utf-8", errors), stop
        except UnicodeDecodeError as error:
            raise _malformed(path, at, data[at:stop][:40], "UTF-8") from error

    def write(out: bytearray, value: str | None) -> None:
        if value is None:
            size.write(out, -1)
            return
        if not isinstance(value, str):
            raise InvalidRequestError(f"{path}: must be a string", got=type(value).__name__)
        try:
            raw = value.encode("utf-8")
        except UnicodeEncodeError as error:
            raise InvalidRequestError(f"{path}: must be Unicode text", got=ascii(value)) from error
        size.write(out, len(raw))
        out += raw

    return _Codec(size.least, read, write)


def _bytes(path: str, rules: _Rules, *, is_nullable: bool) -> _Codec:
    size = _size(path, "i", rules, is_nullable=is_nullable)

    def read(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
        length, at = size.read(data, at, end)
        if length < 0:
            return None, at
        stop = _end(path, at, length, end)
        return data[at:stop], stop

    def write(out: bytearray, value: bytes | Deferred | None) -> None:
        if value is None:
            size.write(out, -1)
            return
        if isinstance(value, Deferred):
            size.write(out, value.size)
            value.position = len(out)
            return
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise InvalidRequestError(f"{path}: must be bytes", got=type(value).__name__)
        size.write(out, len(value))
        out += value

    return _Codec(size.least, read, write)


# ---- arrays -------------------------------------------------------------------------------------
def _array(path: str, element: _Codec, rules: _Rules, *, is_nullable: bool) -> _Codec:
    size = _size(path, "i", rules, is_nullable=is_nullable)
    least = max(1, element.least)

    def read(data: bytes, at: int, end: int) -> tuple[list[Any] | None, int]:
        count, at = size.read(data, at, end)
        if count < 0:
            return None, at
        _end(path, at, count * least, end)
        if rules.counted is not None:
            rules.counted.add(path, at, count)
        values = []
        for _ in range(count):
            value, at = element.read(data, at, end)
            values.append(value)
        return values, at

    def write(out: bytearray, values: Sequence[Any] | None) -> None:
        size.write(out, -1 if values is None else len(values))
        for value in values or ():
            element.write(out, value)

    return _Codec(size.least, read, write)


def _numbers(path: str, code: str, rules: _Rules, *, is_nullable: bool) -> _Codec:
    """Return the codec of an array of numbers: one call of `struct` for all of them."""
    size = _size(path, "i", rules, is_nullable=is_nullable)
    width = struct.calcsize(f">{code}")

    def read(data: bytes, at: int, end: int) -> tuple[list[Any] | None, int]:
        count, at = size.read(data, at, end)
        if count < 0:
            return None, at
        stop = _end(path, at, count * width, end)
        if rules.counted is not None:
            rules.counted.add(path, at, count)
        return list(struct.unpack_from(f">{count}{code}", data, at)), stop

    def write(out: bytearray, values: Sequence[Any] | None) -> None:
        size.write(out, -1 if values is None else len(values))
        try:
            out += struct.pack(f">{len(values or ())}{code}", *(values or ()))
        except struct.error as error:
            raise InvalidRequestError(f"{path}: {error}", got=values) from error

    return _Codec(size.least, read, write)


# ---- lengths ------------------------------------------------------------------------------------
def _size(path: str, code: str, rules: _Rules, *, is_nullable: bool) -> _Codec:
    """Return the codec of a length or a count, which is negative for null."""
    fixed = _number(path, code)
    is_flexible = rules.is_flexible

    def read(data: bytes, at: int, end: int) -> tuple[int, int]:
        if is_flexible:
            if at < end and 0 < data[at] < 0x80:  # one byte, as usual
                return data[at] - 1, at + 1
            above, at = read_unsigned_varint(data, at, end)
            size = above - 1
        else:
            size, at = fixed.read(data, at, end)
        if size < 0 and not is_nullable:
            raise _malformed(path, at, "null", "a value")
        return size, at

    def write(out: bytearray, size: int) -> None:
        if size < 0 and not is_nullable:
            raise InvalidRequestError(f"{path}: must not be null")
        if not is_flexible:
            fixed.write(out, size)
        elif size < 0x7F:
            out.append(size + 1)
        else:
            write_unsigned_varint(out, size + 1)

    return _Codec(1 if is_flexible else fixed.least, read, write)


def read_unsigned_varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Read groups of 7 bits, lowest first; return the number and the position after it.

    Raises:
        CorruptRecordError: It does not end before `end`, or within 5 bytes.

    Source: org.apache.kafka.common.utils.ByteUtils.readUnsignedVarint.
    """
    value = 0
    for turn in range(_VARINT_MAX_SIZE):
        if at >= end:
            raise _malformed("unsigned varint", at, "the end of the data", "another byte")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << 7 * turn
        if byte < 0x80:
            return value, at
    raise _malformed("unsigned varint", at, "more bytes", f"at most {_VARINT_MAX_SIZE}")


def write_unsigned_varint(out: bytearray, value: int) -> None:
    """Append a number as groups of 7 bits, lowest first."""
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _end(path: str, at: int, size: int, end: int) -> int:
    """Return `at + size`; raise where that is beyond `end`."""
    if size > end - at:
        raise _malformed(path, at, f"{end - at} bytes", f"at least {size}")
    return at + size


def _malformed(path: str, at: int, got: object, expected: object) -> CorruptRecordError:
    return CorruptRecordError(f"{path}: malformed", position=at, got=got, expected=expected)
