"""Declaration of a setting: key, type, default, bounds, unit and description in one place.

A settings class is a frozen dataclass whose fields are made by `setting(...)`. The field's name
is the key with `_` for `.`. `settings_of` returns the declarations, so that reading, checking,
describing and templates are written once for all settings.
"""

import re
import textwrap
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import field, fields
from difflib import get_close_matches
from functools import cache
from typing import Any, Final, NamedTuple, cast

from streamlog.errors import InvalidConfigError

__all__ = [
    "ANY",
    "BOOLEAN",
    "DOUBLE",
    "INT",
    "LIST",
    "LONG",
    "MAX_INT",
    "MAX_LONG",
    "ORDERED_LIST",
    "STRING",
    "AllowedValues",
    "ValueKind",
    "Setting",
    "Synonym",
    "at_least",
    "between",
    "check_order",
    "check_settings",
    "each_of",
    "format_template",
    "one_of",
    "only",
    "sequence_of",
    "setting",
    "settings_of",
    "text_of",
    "unknown_key_error",
]

MAX_INT: Final = 2**31 - 1  # java.lang.Integer.MAX_VALUE
MAX_LONG: Final = 2**63 - 1  # java.lang.Long.MAX_VALUE
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,20}", re.ASCII)
_DECIMAL: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?", re.ASCII)
_BOOLEANS: Final = {"true": True, "false": False}


class ValueKind(NamedTuple):
    """A type of values: its name, its Python type, and the parser of its text.

    `parse` gets text without surrounding white space and raises `ValueError` if it is not of this
    kind; `is_kind` checks a Python value.
    """

    name: str
    parse: Callable[[str], Any]
    is_kind: Callable[[object], bool]


class AllowedValues(NamedTuple):
    """The values of a kind that are allowed, and their description for errors."""

    expected: str
    accepts: Callable[[Any], bool]


class Synonym(NamedTuple):
    """A broker's name for a topic's setting, and how many of our units one of its units is."""

    key: str
    factor: int = 1


class Setting(NamedTuple):
    """The declaration of one setting."""

    key: str
    kind: ValueKind
    default: Any
    bounds: AllowedValues
    doc: str
    unit: str
    broker: tuple[Synonym, ...]  # the first one present wins

    @property
    def name(self) -> str:
        """The name of the field."""
        return self.key.replace(".", "_")

    def parse(self, value: object, *, factor: int = 1, path: str | None = None) -> Any:
        """Return the checked value of a text, or of a Python value of the right kind.

        Raises:
            InvalidConfigError: It is not of this setting's kind, or outside its bounds.
        """
        try:
            parsed: Any = self.kind.parse(value.strip()) if isinstance(value, str) else value
        except ValueError:
            raise self._error(value, path) from None
        if factor != 1 and self.kind.is_kind(parsed) and parsed > 0:
            parsed *= factor
        return self.check(parsed, got=value, path=path)

    def check(self, value: Any, *, got: object = None, path: str | None = None) -> Any:
        """Return `value` if it is of this setting's kind and inside its bounds.

        Raises:
            InvalidConfigError: It is not.
        """
        if value is None and self.default is None:
            return value
        if not self.kind.is_kind(value) or not self.bounds.accepts(value):
            raise self._error(value if got is None else got, path)
        return value

    def _error(self, got: object, path: str | None) -> InvalidConfigError:
        unit = f" in {self.unit}" if self.unit else ""
        return InvalidConfigError(
            f"invalid value for {self.key}",
            path=path,
            got=repr(got),
            expected=f"{self.kind.name}{unit}, {self.bounds.expected}",
        )


def setting(
    key: str,
    kind: ValueKind,
    bounds: AllowedValues,
    doc: str,
    *,
    default: Any,
    unit: str = "",
    broker: str | tuple[Synonym, ...] = (),
) -> Any:
    """Declare a setting, as the default of a dataclass field.

    Args:
        key: Kafka's key; the field must have its name with `_` for `.`.
        kind: Type of the values.
        bounds: The allowed values.
        doc: Its description, in a sentence or two.
        default: The default value; None makes the setting optional.
        unit: `bytes`, `ms` …, or empty.
        broker: Its names in a broker's `server.properties`; a plain name has our unit.
    """
    synonyms = (Synonym(broker),) if isinstance(broker, str) else broker
    declared = Setting(key, kind, default, bounds, doc, unit, synonyms)
    return field(default=default, metadata={"setting": declared})


@cache
def settings_of(kind: Any) -> Mapping[str, Setting]:
    """Return the declarations of a settings class by key, in their order."""
    declared = [each.metadata["setting"] for each in fields(kind) if "setting" in each.metadata]
    return {each.key: each for each in declared}


def check_settings(settings: object) -> None:
    """Check every field of a settings object, for its `__post_init__`.

    Raises:
        InvalidConfigError: A value is of the wrong kind or outside its bounds.
    """
    for declared in settings_of(cast(Hashable, type(settings))).values():
        declared.check(getattr(settings, declared.name))


def check_order(settings: object, *keys: str, is_strict: bool = False) -> None:
    """Check that the values of keys ascend.

    Args:
        settings: The settings object.
        keys: The keys, that of the smallest value first.
        is_strict: Whether equal values are refused too.

    Raises:
        InvalidConfigError: They do not.
    """
    values = [getattr(settings, each.replace(".", "_")) for each in keys]
    for at in range(len(keys) - 1):
        low, high = values[at : at + 2]
        if low > high or (is_strict and low == high):
            raise InvalidConfigError(
                f"invalid value for {keys[at + 1]}",
                got=text_of(high),
                expected=f"{'more than' if is_strict else 'at least'} {keys[at]} ({low})",
            )


def text_of(value: object) -> str:
    """Return a value as text of a `.properties` file."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, frozenset):
        return ",".join(sorted(value))
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)


def unknown_key_error(
    key: str, known: Mapping[str, object], *, what: str, path: str | None
) -> InvalidConfigError:
    """Return the error about an unknown key, with the nearest of `known`."""
    nearest = get_close_matches(key, known, n=1)
    return InvalidConfigError(
        f"unknown {what}",
        path=path,
        got=repr(key),
        expected=f"perhaps {nearest[0]}" if nearest else None,
        hint=f"use {nearest[0]}" if nearest else None,
    )


def format_template(head: str, keys: Iterable[tuple[str, Setting]]) -> str:
    """Return a `.properties` text that explains keys and shows their defaults, commented out.

    Args:
        head: The purpose of the file.
        keys: Each setting under its key in this file.
    """
    blocks = [_comment(head)]
    for key, each in keys:
        unit = f" Unit: {each.unit}." if each.unit else ""
        blocks.append(f"{_comment(each.doc + unit)}#{key}={text_of(each.default)}\n")
    return "\n".join(blocks)


def _comment(text: str) -> str:
    return "".join(f"# {line}\n" for line in textwrap.wrap(text, 96))


# ---- kinds ----------------------------------------------------------------------------------
def _parse_integer(text: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise ValueError(text)
    return int(text)


def _parse_double(text: str) -> float:
    if not _DECIMAL.fullmatch(text):
        raise ValueError(text)
    return float(text)


def _parse_boolean(text: str) -> bool:
    try:
        return _BOOLEANS[text.lower()]
    except KeyError:
        raise ValueError(text) from None


def _parse_list(text: str) -> frozenset[str]:
    items = [item.strip() for item in text.split(",")] if text else []
    if len(items) != len(set(items)) or "" in items:
        raise ValueError(text)
    return frozenset(items)


def _parse_ordered_list(text: str) -> tuple[str, ...]:
    items = tuple(item.strip() for item in text.split(",")) if text else ()
    if len(items) != len(set(items)) or "" in items:
        raise ValueError(text)
    return items


def _is_integer(limit: int) -> Callable[[object], bool]:
    return lambda value: type(value) is int and -limit - 1 <= value <= limit


INT: Final = ValueKind("a whole number of 32 bits", _parse_integer, _is_integer(MAX_INT))
LONG: Final = ValueKind("a whole number of 64 bits", _parse_integer, _is_integer(MAX_LONG))
DOUBLE: Final = ValueKind(
    "a decimal number", _parse_double, lambda value: type(value) in (int, float)
)
BOOLEAN: Final = ValueKind("true or false", _parse_boolean, lambda value: type(value) is bool)
STRING: Final = ValueKind("a word", str, lambda value: type(value) is str)
LIST: Final = ValueKind(
    "words separated by commas", _parse_list, lambda value: type(value) is frozenset
)

ORDERED_LIST: Final = ValueKind(
    "words separated by commas, in order",
    _parse_ordered_list,
    lambda value: type(value) is tuple,
)


# ---- bounds ---------------------------------------------------------------------------------
ANY: Final = AllowedValues("any", lambda value: True)


def at_least(low: int) -> AllowedValues:
    """Allow numbers from `low` on."""
    return AllowedValues(f"at least {low}", lambda value: value >= low)


def between(low: float, high: float) -> AllowedValues:
    """Allow numbers from `low` to `high`, both included."""
    return AllowedValues(f"from {low} to {high}", lambda value: low <= value <= high)


def one_of(*allowed: object) -> AllowedValues:
    """Allow the given values."""
    return AllowedValues(
        f"one of {', '.join(map(text_of, allowed))}", lambda value: value in allowed
    )


def each_of(*allowed: str) -> AllowedValues:
    """Allow sets of the given words, including the empty set."""
    return AllowedValues(
        f"each one of {', '.join(allowed)}", lambda value: value <= frozenset(allowed)
    )


def sequence_of(*allowed: str) -> AllowedValues:
    """Allow sequences of the given words, except the empty one."""
    return AllowedValues(
        f"one or more of {', '.join(allowed)}",
        lambda value: bool(value) and set(value) <= set(allowed),
    )


def only(supported: str) -> AllowedValues:
    """Allow just one value, given as text, of a key whose other values only Kafka supports."""
    return AllowedValues(
        f"only {supported}: Kafka's other values are not supported by streamlog",
        lambda value: text_of(value) == supported,
    )
