"""`.properties` texts as Java reads and writes them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.config.properties import format_properties, parse_properties
from streamlog.errors import InvalidConfigError


@pytest.mark.parametrize(
    "line",
    ["a=b", "a = b", "a:b", "a : b", "a b", "a\tb", "  a=b", "a  =  b", "\fa=b"],
)
def test_separators_and_white_space_around_them_do_not_matter(line: str) -> None:
    assert parse_properties(line) == {"a": "b"}


def test_only_the_first_separator_parts_key_from_value() -> None:
    assert parse_properties("a==b\nc=d=e\nf :=g") == {"a": "=b", "c": "d=e", "f": "=g"}


def test_white_space_behind_a_value_belongs_to_it() -> None:
    assert parse_properties("a=b  ") == {"a": "b  "}


def test_comments_and_empty_lines_are_left_out() -> None:
    text = "# one\n  ! two\n\n   \na=b # not a comment\n#c=d\\\ne=f"
    assert parse_properties(text) == {"a": "b # not a comment", "e": "f"}


def test_a_key_alone_has_an_empty_value() -> None:
    assert parse_properties("a\nb=\nc:") == {"a": "", "b": "", "c": ""}


def test_the_last_of_several_equal_keys_counts() -> None:
    assert parse_properties("a=1\na=2") == {"a": "2"}


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_lines_end_as_on_any_system(end: str) -> None:
    assert parse_properties(f"a=1{end}b=2{end}") == {"a": "1", "b": "2"}


def test_an_odd_number_of_backslashes_continues_the_line() -> None:
    text = "policy=compact,\\\n    delete\nx=\\\\\ny=\\\\\\\n  z"
    assert parse_properties(text) == {"policy": "compact,delete", "x": "\\", "y": "\\z"}


def test_a_continued_line_may_look_like_a_comment() -> None:
    assert parse_properties("a=b\\\n# c") == {"a": "b# c"}


def test_a_backslash_at_the_very_end_continues_nothing() -> None:
    assert parse_properties("a=b\\") == {"a": "b"}


def test_escapes() -> None:
    text = r"a\ b\=c\:d = \t\n\r\f\u0041\\\q\ud83d\ude00"
    assert parse_properties(text) == {"a b=c:d": "\t\n\r\fA\\q\U0001f600"}


@pytest.mark.parametrize("text", ["a=1\nb=\\u12", "a=1\nb=\\uwxyz", "a=1\n\\u=3"])
def test_malformed_unicode_escape_names_file_and_line(text: str) -> None:
    with pytest.raises(InvalidConfigError, match=r"in server\.properties: got line 2"):
        parse_properties(text, "server.properties")


@pytest.mark.parametrize("text", ["=1", "a=1\n:2", "  = 3"])
def test_line_without_a_key_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfigError, match="no key"):
        parse_properties(text)


# "\x00" and lone surrogates are no text anybody would write
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@given(st.dictionaries(_TEXT.filter(bool), _TEXT, max_size=4))
def test_parse_inverts_format(properties: dict[str, str]) -> None:
    text = format_properties(properties, comment="made by a test\n\nof ours")
    assert parse_properties(text) == properties
    assert text.isascii()


@given(st.text(max_size=60))
def test_any_text_parses_or_is_refused(text: str) -> None:
    try:
        parsed = parse_properties(text)
    except InvalidConfigError:
        return
    assert all(parsed)
