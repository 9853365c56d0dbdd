"""The site builds without a warning, with every page, and with a reference that is generated."""

import re
from pathlib import Path

import pytest

import streamlog
from streamlog.cli.commands import streamlog as command
from tests.meta.repository import ROOT
from tests.meta.test_documents import PAGES
from tests.programs.site.__main__ import build

pytestmark = pytest.mark.compat

HTML = ROOT / ".cache" / "site" / "html"


@pytest.fixture(scope="module")
def printed() -> str:
    done = build()
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_it_builds_without_a_warning(printed: str) -> None:
    assert "WARNING" not in printed
    assert "Documentation built" in printed


def test_every_page_is_in_it(printed: str) -> None:
    pages = {path.relative_to(ROOT).with_suffix(".html") for path in PAGES}
    pages = pages - {Path("README.html")} | {Path("index.html")}
    assert {page for page in pages if not (HTML / page).exists()} == set()


def test_the_reference_has_every_command_and_every_public_name(printed: str) -> None:
    commands = (HTML / "reference" / "commands.html").read_text()
    assert set(command.commands) <= set(re.findall(r"Usage: streamlog ([a-z-]+)", commands))
    names = (HTML / "reference" / "python.html").read_text()
    missing = {
        name for name in streamlog.__all__ if not re.search(rf'id="streamlog[\w.]*\.{name}"', names)
    }
    assert missing == set()


def test_it_loads_nothing_from_another_host(printed: str) -> None:
    for page in HTML.rglob("*.html"):
        loaded = re.findall(
            r"<(?:script|img|link)[^>]* (?:src|href)=\"?(https?:[^\" >]+)", page.read_text()
        )
        assert loaded == [], page
