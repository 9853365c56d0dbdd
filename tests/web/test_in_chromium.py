"""The pages in a real browser: nothing is blocked, fits, is dark at night, works by keyboard.

`SCREENSHOTS=DIR` keeps what they look like, for people.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamlog.clock import ManualClock
from streamlog.overview.look import overview_of
from streamlog.web.pages import report_page
from streamlog.web.server import LogPages
from tests.support.chromium import PROGRAM, Chromium, chromium
from tests.support.cli import ok
from tests.support.log_pages import Browser, serving
from tests.support.shown_root import NOW, make_shown_root

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="needs a browser: apt-get install chromium")

NARROW, WIDE = 390, 1280
# What people with weak eyes can read (WCAG 2.2, AA): text against what is behind it.
CONTRAST = """
(() => {
  const light = (color) => {
    const [r, g, b] = color.match(/[\\d.]+/g).map(Number).map((c) => c / 255)
      .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const color = getComputedStyle(at).backgroundColor;
      if (color !== 'rgba(0, 0, 0, 0)') return color;
    }
    return 'rgb(255, 255, 255)';
  };
  const bad = [];
  for (const element of document.querySelectorAll('body *')) {
    const says = [...element.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    if (!says || element.closest('svg') || !element.offsetParent) continue;
    const pair = [light(getComputedStyle(element).color), light(behind(element))].sort();
    const ratio = (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
    if (ratio < 4.5) bad.push(`${element.tagName} ${ratio.toFixed(2)} ${element.textContent}`);
  }
  return bad;
})()
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_shown_root(tmp_path_factory.mktemp("seen") / "root")


@pytest.fixture(scope="module")
def report(root: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    page = tmp_path_factory.mktemp("page") / "report.html"
    page.write_text(report_page(overview_of(root, clock=ManualClock(NOW))), encoding="utf-8")
    return f"file://{page}"


@pytest.fixture(scope="module")
def site(root: str) -> Iterator[Browser]:
    with serving(LogPages(root, allows_writes=True)) as site:
        yield site


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with chromium(tmp_path_factory.mktemp("profile")) as window:
        yield window


def check(window: Chromium, name: str) -> None:
    """Check a page as it is shown, and keep its picture if asked to."""
    if target := os.environ.get("SCREENSHOTS"):
        Path(target).mkdir(parents=True, exist_ok=True)
        window.screenshot(Path(target, f"{name}.png"))
    assert window.complaints == []
    width = window.value("document.documentElement.scrollWidth")
    assert width <= window.value("innerWidth"), "the page is wider than the window"
    assert window.value(CONTRAST) == []


@pytest.mark.parametrize("is_dark", [False, True])
@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_every_page_fits_and_can_be_read(
    window: Chromium, site: Browser, report: str, width: int, is_dark: bool
) -> None:
    live = site.url.rstrip("/")
    pages = {
        "report": report,
        "home": f"{live}/",
        "topic": f"{live}/topics/orders",
        "records": f"{live}/topics/hostile/records",
        "record": f"{live}/topics/orders/records/0/5",
        "write": f"{live}/topics/orders/write",
        "error": f"{live}/topics/orders/records?from=yesterday",
    }
    for name, url in pages.items():
        window.complaints.clear()
        window.show(url, width=width, is_dark=is_dark)
        ground = window.value("getComputedStyle(document.body).backgroundColor")
        assert (ground == "rgb(255, 255, 255)") is not is_dark
        if name == "error":  # the status of the page itself
            window.complaints.clear()
        check(window, f"{name}-{width}-{'dark' if is_dark else 'light'}")


def test_hostile_records_run_nothing(window: Chromium, site: Browser) -> None:
    for path in ("topics/hostile/records", "topics/hostile/records/0/0"):
        window.complaints.clear()
        window.show(f"{site.url}{path}")
        scripts = window.value("[...document.scripts].map((s) => s.getAttribute('src'))")
        assert scripts == ["/assets/app.js"]
        assert "<script>alert('x')</script>" in window.value("document.body.innerText")
        assert window.complaints == []


def test_records_appear_as_they_arrive(window: Chromium, site: Browser, root: str) -> None:
    window.complaints.clear()
    window.show(f"{site.url}topics/orders/tail")
    ok("--path", root, "produce", "orders", "-p", 1, stdin=b"first\n<b>second</b>\n")
    window.wait_for("document.querySelectorAll('#tail tr').length === 2")
    assert "<b>second</b>" in window.value("document.querySelector('#tail tr').innerText")
    window.value("document.getElementById('pause').click()")
    assert window.value("document.getElementById('pause').getAttribute('aria-pressed')") == "true"
    assert window.complaints == []


def test_the_topics_are_reached_by_keyboard(window: Chromium, site: Browser) -> None:
    window.show(site.url)
    for _ in range(20):
        window.press("Tab", 9)
        focused = window.value("document.activeElement.textContent")
        if focused == "orders":
            break
    assert focused == "orders"
    assert window.value("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    window.value("document.activeElement.click()")
    window.wait_for("location.pathname === '/topics/orders'")
