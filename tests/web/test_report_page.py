"""The report: one page that needs nothing else, whatever the log contains."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from streamlog.clock import ManualClock
from streamlog.overview.look import overview_of
from streamlog.web.pages import report_page
from tests.support.cli import ok, streamlog
from tests.support.shown_root import NOW, make_shown_root

VOID = {"meta", "br", "input", "link", "hr", "img", "rect"}


class Outline(HTMLParser):
    """Checks that tags are balanced, and collects tags and text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID or tag == "rect":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_shown_root(tmp_path_factory.mktemp("shown") / "<b>root & co</b>")


@pytest.fixture(scope="module")
def page(root: str) -> str:
    return report_page(overview_of(root, clock=ManualClock(NOW)))


def test_the_page_is_whole_and_says_what_is_there(page: str) -> None:
    outline = Outline(page)
    text = re.sub(r"\s+", " ", outline.text)
    for said in (
        "orders",
        "billing",
        "held by billing",
        "Segments, and when they leave",
        "leaves on",
    ):
        assert said in text, said
    assert "retention.ms" in text
    assert "86400000 (1d)" in text


def test_the_page_needs_no_network_and_no_script(page: str) -> None:
    outline = Outline(page)
    assert {tag for tag, _ in outline.tags} & {"script", "link", "img", "iframe"} == set()
    addresses = [
        value
        for _, attributes in outline.tags
        for name, value in attributes.items()
        if name in ("href", "src", "xlink:href", "action")
    ]
    assert addresses
    assert all(each is not None and each.startswith("#") for each in addresses)
    assert "url(" not in page
    assert "@import" not in page
    # Every place that the page links to is there.
    ids = {attributes["id"] for _, attributes in outline.tags if "id" in attributes}
    assert {each[1:] for each in addresses if each} <= ids


def test_names_are_escaped(page: str) -> None:
    assert "<b>root" not in page
    assert "&lt;b&gt;root &amp; co" in page


def test_diagrams_and_wide_tables_have_names(page: str) -> None:
    outline = Outline(page)
    for tag, attributes in outline.tags:
        if tag == "svg":
            assert attributes.get("aria-label") or attributes.get("aria-hidden") == "true"
        if attributes.get("role") == "region":
            assert attributes["aria-label"]
            assert attributes["tabindex"] == "0"


def test_the_page_of_a_huge_root_is_of_a_size_that_opens(root: str) -> None:
    found = overview_of(root, clock=ManualClock(NOW))
    orders = next(each for each in found.topics if each.name == "orders")
    long = replace(orders.partitions[0], segments=orders.partitions[0].segments * 100)
    wide = replace(orders, partitions=(long,) * 20)
    many = tuple(replace(wide, name=f"orders-{number}") for number in range(100))
    page = report_page(replace(found, topics=many))  # 1,200,000 segments
    assert "segments in the middle not drawn" in page
    assert len(page) < 16 << 20


# ---- the command --------------------------------------------------------------------------------
def test_the_command_writes_a_page(root: str, tmp_path: Path) -> None:
    target = tmp_path / "out.html"
    ran = ok("report", root, "-o", target)
    assert "wrote" in ran.error
    Outline(target.read_text(encoding="utf-8"))
    assert ok("--path", root, "report", "-o", "-").out.startswith(b"<!DOCTYPE html>")


def test_the_command_prints_json(root: str) -> None:
    (shown,) = ok("report", root, "--format", "json", "--hours", 5).rows
    assert shown["window"]["count"] == 5
    assert shown["kind"] == "log root"


def test_the_command_needs_a_root() -> None:
    assert streamlog("report").code == 2
    assert streamlog("report", "/nowhere/at/all").code == 2
