r"""The text of a `.properties` file, as Java reads and writes it.

A logical line is a key and a value. It may extend over several lines of the file if each but the
last ends with an odd number of backslashes; white space before a continued line is ignored. Lines
that start with `#` or `!` and empty lines are skipped.

    # comment                      key and value: separated by the first unescaped `=`, `:` or
    segment.bytes = 1048576        white space, and white space around that
    cleanup.policy=compact,\       \t \n \r \f \uXXXX are escapes; before any other
                   delete          character a backslash only removes its special meaning

Source: java.util.Properties.load and store.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from streamlog.errors import InvalidConfigError

__all__ = ["format_properties", "parse_properties"]

_BLANK: Final = " \t\f"
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.|\Z)", re.DOTALL)
_SEPARATOR: Final = re.compile(r"(?P<key>(?:[^\\ \t\f=:]|\\.)*)[ \t\f]*[=:]?[ \t\f]*", re.DOTALL)
_NAMED: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPED: Final = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}


def parse_properties(text: str, path: str | None = None) -> dict[str, str]:
    r"""Return the keys and values of a `.properties` text, in their order.

    Args:
        text: The whole text.
        path: Where it comes from, for errors.

    Returns:
        A value for each key; the last one if a key repeats, as in Java.

    Raises:
        InvalidConfigError: A malformed `\uXXXX`, or a line without a key.

    Source: java.util.Properties.load.
    """
    properties: dict[str, str] = {}
    for number, line in _logical_lines(text):
        match = _SEPARATOR.match(line)
        raw_key = match["key"] if match else ""
        if match is None or not raw_key:
            raise InvalidConfigError(
                "a line has no key", path=path, got=f"line {number}", expected="key=value"
            )
        key = _unescape(raw_key, path, number)
        properties[key] = _unescape(line[match.end() :], path, number)
    return properties


def format_properties(properties: Mapping[str, str], *, comment: str = "") -> str:
    """Return the text that `parse_properties` reads back as `properties`.

    Args:
        properties: Keys and values, written in their order.
        comment: Lines to write first, each after a `#`.

    Source: java.util.Properties.store, without its date.
    """
    lines = [f"# {line}".rstrip() for line in comment.splitlines()]
    lines += [f"{_escape(key, ' =:#!')}={_escape_value(properties[key])}" for key in properties]
    return "".join(f"{line}\n" for line in lines)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield each logical line without its continuation marks, and its first line's number."""
    pending, first = "", 0
    for number, natural in enumerate(_LINE_END.split(text), start=1):
        line = natural.lstrip(_BLANK)
        if not first:
            if not line or line[0] in "#!":
                continue
            first = number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending += line[:-1]
            continue
        if pending or line:
            yield first, pending + line
        pending, first = "", 0
    if pending:
        yield first, pending


def _unescape(text: str, path: str | None, number: int) -> str:
    def replace(match: re.Match[str]) -> str:
        escaped = match[1]
        if len(escaped) == 5:
            return chr(int(escaped[1:], 16))
        if escaped == "u":
            raise InvalidConfigError(
                "malformed \\uXXXX escape",
                path=path,
                got=f"line {number}",
                expected="four hexadecimal digits",
            )
        return _NAMED.get(escaped, escaped)

    # \uXXXX are UTF-16 units: two of them may form one character.
    return _ESCAPE.sub(replace, text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _escape(text: str, special: str) -> str:
    def one(character: str) -> str:
        if character in _ESCAPED:
            return _ESCAPED[character]
        if character in special:
            return "\\" + character
        if " " <= character <= "~":
            return character
        units = character.encode("utf-16-be", "surrogatepass")
        return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))

    return "".join(one(character) for character in text)


def _escape_value(text: str) -> str:
    # Only leading white space needs it: after the separator it would count as padding.
    escaped = _escape(text, "")
    return "\\" + escaped if escaped.startswith(" ") else escaped
