"""`subscribePattern`: Java's regular expressions over topic names, in bounded time.

Jobs written for Spark's Kafka source use patterns of `java.util.regex`. Python's `re` refuses some
of them, reads others differently (`[a-z&&[^c]]`) and can take exponential time. This module parses
a pattern by Java's rules and rewrites it for RE2, which is part of Arrow and takes time linear in
the length of the name. Topic names have 65 possible characters, so every character class, with its
unions, intersections, properties and flags, becomes the plain set of its characters. The output
avoids all syntax that RE2 and Java read differently.

RE2 has no look-around, back references, atomic groups or possessive quantifiers. Lookahead at the
beginning of a pattern, the usual way to exclude topics, becomes a second pattern; all others are
refused.

Source: java.util.regex.Pattern (sequence, clazz, range, RemoveQEQuoting) of Java 17.
"""

import functools
import string
import unicodedata
from typing import Final, NamedTuple, NoReturn

from streamlog.errors import InvalidOptionError

__all__ = ["JavaPattern", "matches_topic"]

_OPTION: Final = "option subscribePattern"
_ALPHABET: Final = frozenset(string.ascii_letters + string.digits + "._-")  # Topic.LEGAL_CHARS
_NOTHING: Final = r"[^\x00-\x{10FFFF}]"
_LENGTH_MAX: Final = 4096
_DEPTH_MAX: Final = 100
_REMEMBERED: Final = 65_536

Chars = frozenset[str]


def _chars(text: str) -> Chars:
    return _ALPHABET & frozenset(text)


_CLASSES: Final = {
    "d": _chars(string.digits),
    "w": _chars(string.ascii_letters + string.digits + "_"),
    "s": _chars(""),
    "h": _chars(""),
    "v": _chars(""),
}
_PROPERTIES: Final = {
    "Lower": _chars(string.ascii_lowercase),
    "Upper": _chars(string.ascii_uppercase),
    "ASCII": _ALPHABET,
    "Alpha": _chars(string.ascii_letters),
    "Digit": _chars(string.digits),
    "Alnum": _chars(string.ascii_letters + string.digits),
    "Punct": _chars(string.punctuation),
    "Graph": _ALPHABET,
    "Print": _ALPHABET,
    "Blank": _chars(""),
    "Cntrl": _chars(""),
    "XDigit": _chars(string.hexdigits),
    "Space": _chars(""),
    "javaLowerCase": _chars(string.ascii_lowercase),
    "javaUpperCase": _chars(string.ascii_uppercase),
    "javaLetter": _chars(string.ascii_letters),
    "javaDigit": _chars(string.digits),
    "javaLetterOrDigit": _chars(string.ascii_letters + string.digits),
    "IsAlphabetic": _chars(string.ascii_letters),
    "IsLetter": _chars(string.ascii_letters),
    "IsLowercase": _chars(string.ascii_lowercase),
    "IsUppercase": _chars(string.ascii_uppercase),
    "IsDigit": _chars(string.digits),
    "IsHex_Digit": _chars(string.hexdigits),
    "IsPunctuation": _chars(string.punctuation),
    "IsLatin": _chars(string.ascii_letters),
    "InBasicLatin": _ALPHABET,
}
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_FLAGS_WITHOUT_EFFECT: Final = frozenset("dmsuU")  # they concern lines and non-ASCII characters


class JavaPattern(NamedTuple):
    """A pattern rewritten for RE2.

    Attributes:
        whole: Matches the whole name.
        beginnings: Lookaheads: whether the name must match, and a pattern for its beginning.
    """

    whole: str
    beginnings: tuple[tuple[bool, str], ...] = ()

    @classmethod
    def parse(cls, pattern: str) -> "JavaPattern":
        """Parse a Java pattern.

        Raises:
            InvalidOptionError: It is not a valid Java pattern, or a part of it would need
                backtracking; the error names the position.
        """
        if not pattern or len(pattern) > _LENGTH_MAX:
            raise InvalidOptionError(
                f"{_OPTION} is {'too long' if pattern else 'empty'}",
                got=f"{len(pattern)} characters",
                expected=f"1 to {_LENGTH_MAX}",
            )
        parsed = _Parser(pattern).parse()
        for regex in (parsed.whole, *(each for _, each in parsed.beginnings)):
            _search(regex, "", pattern)
        return parsed

    def matches(self, name: str, pattern: str) -> bool:
        """Return whether the pattern matches a name; `pattern` is its text, for errors."""
        return _search(self.whole, name, pattern) and all(
            _search(regex, name, pattern) is wanted for wanted, regex in self.beginnings
        )


@functools.lru_cache(64)
def _parsed(pattern: str) -> JavaPattern:
    return JavaPattern.parse(pattern)


@functools.lru_cache(_REMEMBERED)
def matches_topic(pattern: str, topic: str) -> bool:
    """Return whether a Java pattern matches the whole name of a topic.

    Raises:
        InvalidOptionError: See `JavaPattern.parse`.
    """
    return _parsed(pattern).matches(topic, pattern)


def _search(regex: str, name: str, pattern: str) -> bool:
    """Search an ASCII name for a regular expression of RE2."""
    import pyarrow as pa
    import pyarrow.compute as pc

    data = name.encode()
    # Not pa.array: that imports pandas.
    lengths = pa.py_buffer((0).to_bytes(4, "little") + len(data).to_bytes(4, "little"))
    names = pa.Array.from_buffers(pa.string(), 1, [None, lengths, pa.py_buffer(data)])
    try:
        found = pc.match_substring_regex(names, pattern=regex)
    except pa.ArrowInvalid as error:
        raise InvalidOptionError(
            f"{_OPTION} is too large to match in bounded time ({error})",
            got=repr(pattern[:200]),
            hint="shorten counted repetitions: nested ones multiply",
        ) from None
    return bool(found[0].as_py())


class _Parser:
    """Parses a pattern as Java does and writes it for RE2."""

    def __init__(self, pattern: str) -> None:
        self._given = pattern
        self._text = _without_quotes(pattern)
        self._at = 0
        self._depth = 0
        self._folds = False  # the flag (?i)
        self._beginnings: list[tuple[bool, str]] = []
        self._may_look_ahead = True

    def parse(self) -> JavaPattern:
        regex, branches = self._alternation()
        if self._at < len(self._text):
            self._fail("unmatched closing ')'")
        if self._beginnings and branches > 1:
            self._refuse("lookahead in one of several alternatives")
        return JavaPattern(f"^(?:{regex})$", tuple(self._beginnings))

    # ---- the pattern ----------------------------------------------------------------------
    def _alternation(self) -> tuple[str, int]:
        """Return the alternatives up to the end of the group, and their number."""
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            self._refuse(f"more than {_DEPTH_MAX} nested groups")
        branches = [self._sequence()]
        while self._accept("|"):
            self._may_look_ahead = False
            branches.append(self._sequence())
        self._depth -= 1
        return "|".join(branches), len(branches)

    def _sequence(self) -> str:
        parts = []
        while self._peek() not in ("", "|", ")"):
            parts.append(self._atom() + self._quantifier())
        return "".join(parts)

    def _atom(self) -> str:
        char = self._next()
        if char in "^$":
            self._may_look_ahead &= char == "^" and not self._at > 1
            return f"(?:{char})"
        if char == "(":
            return self._group()
        self._may_look_ahead = False
        if char == "[":
            return _set(self._class(consumes=True))
        if char == ".":
            return _set(_ALPHABET)
        if char == "\\":
            return self._escape_outside()
        if char in "*+?":
            self._fail(f"dangling meta character {char!r}")
        if char == "{":
            self._fail("illegal repetition")
        return _set(self._folded(char))

    def _quantifier(self) -> str:
        char = self._peek()
        if char and char in "*+?":
            quantifier = self._next()
        elif char == "{":
            quantifier = self._counted()
        else:
            return ""
        self._may_look_ahead = False
        if self._accept("+"):
            self._refuse("a possessive quantifier")
        self._accept("?")  # laziness does not change whether the whole name matches
        return quantifier

    def _counted(self) -> str:
        end = self._text.find("}", self._at)
        low, comma, high = self._text[self._at + 1 : max(end, 0)].partition(",")
        is_count = low.isdecimal() and low.isascii() and (not high or high.isdecimal())
        if end < 0 or not is_count or (high and int(high) < int(low)):
            self._fail("illegal repetition")
        self._at = end + 1
        return f"{{{int(low)}{comma}{int(high) if high else ''}}}"

    def _group(self) -> str:
        folds = self._folds
        looks = self._may_look_ahead
        if not self._accept("?"):
            return self._rest_of_group(folds=folds)
        for opening, wanted in (("=", True), ("!", False)):
            if self._accept(opening):
                if not looks:
                    self._refuse("lookahead after the beginning")
                self._may_look_ahead = False
                self._beginnings.append((wanted, f"^{self._rest_of_group(folds=folds)}"))
                self._may_look_ahead = True
                return ""
        if self._accept(">"):
            self._refuse("an atomic group")
        if self._accept("<"):
            if self._peek() in ("=", "!"):
                self._refuse("lookbehind")
            self._name_of_group()
            return self._rest_of_group(folds=folds)
        return self._flags(folds=folds)

    def _rest_of_group(self, *, folds: bool) -> str:
        may_look_ahead, self._may_look_ahead = self._may_look_ahead, False
        regex, _ = self._alternation()
        if not self._accept(")"):
            self._fail("unclosed group")
        self._folds, self._may_look_ahead = folds, may_look_ahead and not regex
        return f"(?:{regex})"

    def _name_of_group(self) -> None:
        end = self._text.find(">", self._at)
        name = self._text[self._at : max(end, 0)]
        if not (name.isascii() and name.isalnum() and name[0].isalpha()):
            self._fail("group name is not letters and digits")
        self._at = end + 1

    def _flags(self, *, folds: bool) -> str:
        is_set = True
        while (char := self._next()) not in (":", ")"):
            if char == "-":
                is_set = False
            elif char == "i":
                self._folds = is_set
            elif char == "x" and is_set:
                self._refuse("the flag x (comments)")
            elif char not in _FLAGS_WITHOUT_EFFECT and char != "x":
                self._fail("unknown inline modifier")
        return "" if char == ")" else self._rest_of_group(folds=folds)

    # ---- escapes --------------------------------------------------------------------------
    def _escape_outside(self) -> str:
        char = self._next()
        if char == "b" or char == "B":
            if self._peek() == "{":
                self._refuse("a boundary other than \\b")
            return f"(?:\\{char})"
        if char == "A" or char == "G":
            return "(?:^)"
        if char == "z" or char == "Z":
            return "(?:$)"
        if char == "k" or (char.isdecimal() and char != "0"):
            self._refuse("a back reference")
        if char == "R":
            return _NOTHING
        if char == "X":
            return _set(_ALPHABET)
        return _set(self._escape(char))

    def _escape(self, char: str) -> Chars:
        """Return the meaning of an escape, inside or outside a class; `char` follows the slash."""
        if char.lower() in _CLASSES and char:
            found = _CLASSES[char.lower()]
            return found if char.islower() else _ALPHABET - found
        if char in ("p", "P"):
            found = self._property()
            return found if char == "p" else _ALPHABET - found
        return self._folded(self._character(char))

    def _character(self, char: str) -> str:
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char == "x" and self._accept("{"):
            return self._code_point(self._text.find("}", self._at) - self._at, 16, closing="}")
        if char in ("x", "u"):
            return self._code_point(2 if char == "x" else 4, 16)
        if char == "0":
            digits = 0
            while digits < 3 and self._text[self._at + digits : self._at + digits + 1] in _OCTAL:
                digits += 1
            return self._code_point(digits, 8)
        if char == "c":
            return chr(ord(self._next()) ^ 64)
        if not char or (char.isascii() and char.isalpha()):
            self._fail("illegal or unsupported escape sequence")
        return char

    def _code_point(self, length: int, base: int, *, closing: str = "") -> str:
        digits = self._text[self._at : self._at + max(length, 0)]
        allowed = _OCTAL if base == 8 else frozenset(string.hexdigits)
        if not digits or len(digits) < length or not allowed.issuperset(digits):
            self._fail("illegal escape sequence")
        self._at += length + len(closing)
        return chr(min(int(digits, base), 0x10FFFF))

    def _property(self) -> Chars:
        if not self._accept("{"):
            return self._named_property(self._next())
        end = self._text.find("}", self._at)
        name = self._text[self._at : max(end, 0)]
        if not name:
            self._fail("unclosed character family")
        self._at = end + 1
        key, equals, value = name.partition("=")
        if equals:
            key = key.lower()
            prefix = {"script": "Is", "sc": "Is", "block": "In", "blk": "In"}.get(key, "")
            if not prefix and key not in ("general_category", "gc"):
                self._fail(f"unknown property {name!r}")
            name = prefix + value
        return self._named_property(name)

    def _named_property(self, name: str) -> Chars:
        found = _PROPERTIES.get(name)
        if found is None:
            category = name.removeprefix("Is")
            if category not in _CATEGORIES:
                self._fail(f"unknown character property {name!r}")
            found = frozenset(
                char for char in _ALPHABET if unicodedata.category(char).startswith(category)
            )
        return self._fold_all(found)

    # ---- classes --------------------------------------------------------------------------
    def _class(self, *, consumes: bool) -> Chars:
        """Return the characters of a class, up to its closing bracket.

        Args:
            consumes: Whether to consume the bracket; False for the right side of `&&`.

        Source: java.util.regex.Pattern.clazz.
        """
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            self._refuse(f"more than {_DEPTH_MAX} nested classes")
        is_negated = consumes and self._accept("^")
        found: Chars | None = None
        while True:
            if self._accept("["):
                found = (found or frozenset()) | self._class(consumes=True)
            elif self._accept("&&"):
                right = self._right_side()
                if right is not None:
                    found = right if found is None else found & right
                elif found is None:
                    self._fail("bad class syntax")
            elif self._peek() == "]" and found is not None:
                break
            elif self._peek() == "":
                self._fail("unclosed character class")
            else:
                found = (found or frozenset()) | self._range()
        self._depth -= 1
        if consumes:
            self._next()
        return _ALPHABET - found if is_negated else found

    def _right_side(self) -> Chars | None:
        right: Chars | None = None
        while self._peek() not in ("]", "&", ""):
            part = self._class(consumes=True) if self._accept("[") else self._class(consumes=False)
            right = part if right is None else right | part
        return right

    def _range(self) -> Chars:
        """Return one item of a class: a character, a range or an escape."""
        char = self._next()
        if char == "\\":
            escape = self._next()
            if escape.lower() in (*_CLASSES, "p"):
                return self._escape(escape)
            char = self._character(escape)
        following = self._text[self._at + 1 : self._at + 2]
        if self._peek() != "-" or following in ("", "]", "["):
            return self._folded(char)
        self._next()
        last = self._next()
        if last == "\\":
            last = self._character(self._next())
        if last < char:
            self._fail("illegal character range")
        return self._fold_all(frozenset(each for each in _ALPHABET if char <= each <= last))

    # ---- case and places --------------------------------------------------------------------
    def _folded(self, char: str) -> Chars:
        return self._fold_all(_ALPHABET & {char}) if char.isascii() else frozenset()

    def _fold_all(self, found: Chars) -> Chars:
        return frozenset("".join(found) + "".join(found).swapcase()) if self._folds else found

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _next(self) -> str:
        char = self._peek()
        if not char:
            self._fail("unexpected end of the pattern")
        self._at += 1
        return char

    def _accept(self, text: str) -> bool:
        is_there = self._text.startswith(text, self._at)
        self._at += len(text) if is_there else 0
        return is_there

    def _fail(self, problem: str) -> NoReturn:
        raise InvalidOptionError(
            f"{_OPTION} is not a Java regular expression: {problem} "
            f"before character {self._at + 1}",
            got=repr(self._given[:200]),
        )

    def _refuse(self, part: str) -> NoReturn:
        raise InvalidOptionError(
            f"{_OPTION} cannot be matched in bounded time: {part} before character {self._at}",
            got=repr(self._given[:200]),
            expected="a pattern without look-around (except at its beginning: (?!internal-).*), "
            "back references, atomic groups and possessive quantifiers",
        )


_OCTAL: Final = frozenset("01234567")
_CATEGORIES: Final = frozenset(
    {"L", "Lu", "Ll", "Lt", "Lm", "Lo", "M", "Mn", "Mc", "Me", "N", "Nd", "Nl", "No", "P", "Pc"}
    | {"Pd", "Ps", "Pe", "Pi", "Pf", "Po", "S", "Sm", "Sc", "Sk", "So", "Z", "Zs", "Zl", "Zp"}
    | {"C", "Cc", "Cf", "Co", "Cs", "Cn"}
)


def _set(chars: Chars) -> str:
    """Return a character class of RE2 with exactly these characters."""
    if not chars:
        return _NOTHING
    if chars == _ALPHABET:
        return "."
    return f"[{''.join(sorted(chars - {'-'}))}{'-' if '-' in chars else ''}]"


def _without_quotes(pattern: str) -> str:
    r"""Return a pattern with the text between \Q and \E escaped one by one.

    Source: java.util.regex.Pattern.RemoveQEQuoting.
    """
    parts, at = [], 0
    while at < len(pattern):
        if pattern.startswith("\\Q", at):
            end = pattern.find("\\E", at)
            quoted = pattern[at + 2 : end if end >= 0 else len(pattern)]
            parts += [char if char.isalnum() or not char.isascii() else f"\\{char}"
                      for char in quoted]  # fmt: skip
            at = len(pattern) if end < 0 else end + 2
        else:
            length = 2 if pattern[at] == "\\" else 1
            parts.append(pattern[at : at + length])
            at += length
    return "".join(parts)
