"""The examples of docs/testing-pipelines.md and of `examples/`, run from a fresh installation.

One run of pytest, in a directory with nothing else in it: the plugin is found by its entry point.
"""

import re
import shutil

import pytest

from tests.meta.repository import ROOT
from tests.meta.test_documents import blocks
from tests.support.projects import install, run_pytest

PAGE = ROOT / "docs" / "testing-pipelines.md"

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """What pytest prints for the page's example, for its cured version, and for examples/."""
    project, installed = (tmp_path_factory.mktemp(name) for name in ("project", "installed"))
    path = install(installed)
    buggy, cure = (
        block.code
        for block in blocks(PAGE)
        if block.language == "python" and "def write(rows, batch, table)" in block.code
    )
    assert buggy.startswith("# test_orders.py\n")
    (project / "test_orders.py").write_text(buggy)
    (project / "test_cured_orders.py").write_text(f"{buggy}\n\n{cure}")
    shutil.copy(ROOT / "examples" / "test_order_sink.py", project)
    return run_pytest(project, path)


def test_only_the_buggy_sink_fails_and_only_where_it_writes_twice(printed):
    assert "1 failed, 11 passed" in printed.splitlines()[-1], printed


def test_the_failure_is_the_one_that_the_page_shows(printed):
    (shown,) = re.findall(r"```text\n(FAILED .*?)```", PAGE.read_text(), re.S)
    name, _, message = shown.partition(" - AssertionError: ")

    assert name in printed
    for line in message.splitlines():
        assert without_rows(line.strip()) in without_rows(printed)


def without_rows(text):
    """Spark reads a table's files in any order."""
    return re.sub(r"row \d+", "row N", text)


def test_the_plugin_was_found_by_its_entry_point(printed):
    (plugins,) = (line for line in printed.splitlines() if line.startswith("plugins: "))

    assert "streamlog-" in plugins
