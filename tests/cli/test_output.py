"""Rows in each format, and text that must not steer a terminal."""

import pytest

from streamlog.cli.output import human_size, safe_text
from tests.support.cli import ok


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536 << 20, "1.5 GiB"),
        (1 << 60, "1048576.0 TiB"),
    ],
)
def test_sizes_for_people(size: int, text: str) -> None:
    assert human_size(size) == text


def test_safe_text_keeps_printable_characters() -> None:
    assert safe_text("naïve 😀 \\") == "naïve 😀 \\"


def test_safe_text_escapes_terminal_control_characters() -> None:
    assert safe_text("a\x1b[31m\n\u202e") == "a\\x1b[31m\\n\\u202e"


def test_an_empty_result_is_no_line_an_empty_list_or_no_table(tmp_path: object) -> None:
    root = f"{tmp_path}/root"
    ok("topics", "create", "t", "--path", root)
    ok("topics", "delete", "t", "--path", root)
    outputs = {f: ok("topics", "list", "--path", root, "--format", f).out for f in FORMATS}
    assert outputs == {"ndjson": b"", "json": b"[]\n", "table": b""}


FORMATS = ("ndjson", "json", "table")
