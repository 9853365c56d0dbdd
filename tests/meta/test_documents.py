"""The documents are true: named paths, modules and links exist, and code blocks run."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from streamlog.arrow.schema import COLUMN_NAMES
from streamlog.config.log_config import LogConfig
from streamlog.config.server_config import ServerConfig
from streamlog.spark.options import OPTIONS
from tests.meta import options_page
from tests.meta.repository import ROOT, files, name

DOCUMENTS = [path for path in files(".md") if "decisions" not in path.parts]
# One of our settings, not a module.
SETTINGS = {**ServerConfig().to_properties(), **LogConfig().to_properties()}
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").glob("*.md"))]  # pages whose blocks are executed
TOP_LEVEL = ("streamlog/", "streaming_jobs/", "tests/", "conf/", "examples/", "docs/", ".ci/")

_CODE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\]\((?!https?:)(?P<path>[^)#\s]*)(?:#(?P<anchor>[^)\s]+))?\)")
_HEADING = re.compile(r"^#+ (.+)$", re.M)
_BLOCK = re.compile(
    r"(?P<comment><!-- not run: (?P<reason>[^\n]+?) -->\n+)?"
    r"^```(?P<language>bash|python)\n(?P<code>.*?)^```$"
    r"(?:\n\n```text\n(?P<output>.*?)^```$)?",
    re.M | re.S,
)


class Block(NamedTuple):
    """A block of code in a document."""

    language: str
    code: str
    line: int
    reason: str | None
    output: str | None = None  # the output shown below it; … stands for the rest of a line


def blocks(path: Path) -> list[Block]:
    text = path.read_text(encoding="utf-8")
    return [
        Block(
            match["language"],
            match["code"],
            text.count("\n", 0, match.start("code")) + 1,
            match["reason"],
            match["output"],
        )
        for match in _BLOCK.finditer(text)
    ]


def prose(path: Path) -> str:
    """Return a document without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)


def links(path: Path) -> list[tuple[Path, str | None]]:
    """Return the files that a document links to, each with its anchor if any."""
    return [
        ((path.parent / match["path"]).resolve() if match["path"] else path, match["anchor"])
        for match in _LINK.finditer(prose(path))
    ]


def anchors(path: Path) -> set[str]:
    """Return the anchors of a document's headings as GitHub spells them."""
    kept = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in _HEADING.findall(prose(path)))
    return {heading.replace(" ", "-") for heading in kept}


def mentioned(path: Path) -> list[str]:
    """Return the texts in single backticks outside blocks of code."""
    return _CODE.findall(prose(path))


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_every_path_in_a_document_exists(document: Path) -> None:
    missing = [
        text
        for text in mentioned(document)
        if text.startswith(TOP_LEVEL)
        and not re.search(r"[*<>{}…\s]|[A-Z]{4,}", text)
        and not (ROOT / text.split(":")[0]).exists()
    ]
    assert missing == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_every_module_in_a_document_exists(document: Path) -> None:
    dotted = re.compile(r"(streamlog(?:\.\w+)+)(?:\(.*\))?")
    missing = [
        match[0]
        for text in mentioned(document)
        if (match := dotted.fullmatch(text)) and not _resolves(match[1]) and text not in SETTINGS
    ]
    assert missing == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_every_link_in_a_document_has_a_target(document: Path) -> None:
    broken = [
        (target, anchor)
        for target, anchor in links(document)
        if not target.exists() or (anchor is not None and anchor not in anchors(target))
    ]
    assert broken == []


def test_the_readme_links_to_every_page() -> None:
    assert set(PAGES) - {README} <= {target for target, _ in links(README)}


def test_the_navigation_of_the_site_has_every_page() -> None:
    navigation = (ROOT / "docs" / "mkdocs.yml").read_text(encoding="utf-8")
    pages = [*PAGES, *sorted((ROOT / "streamlog").rglob("*.md"))]
    assert [name(each) for each in pages if f": {name(each)}\n" not in navigation] == []


def test_the_options_page_is_up_to_date() -> None:
    page = options_page.PAGE.read_text(encoding="utf-8")
    assert page == options_page.with_tables(page)
    assert all(f"| `{each.name}` |" in page for each in OPTIONS)
    assert all(f"`{column}`" in page for column in COLUMN_NAMES)


def _resolves(dotted: str) -> bool:
    """Return whether a name is a module, or an attribute of one."""
    module, attributes = dotted, []
    while module:
        try:
            if importlib.util.find_spec(module) is not None:
                break
        except ModuleNotFoundError:
            pass
        module, _, last = module.rpartition(".")
        attributes.insert(0, last)
    if not module:
        return False
    found = importlib.import_module(module)
    for attribute in attributes:
        if not hasattr(found, attribute):
            return False
        found = getattr(found, attribute)
    return True


def test_readme_and_design_exist() -> None:
    assert README.exists()
    assert (ROOT / "streamlog" / "DESIGN.md").exists()


def test_every_file_that_the_design_page_names_exists() -> None:
    design = (ROOT / "streamlog" / "DESIGN.md").read_text("utf-8")
    named = re.findall(r"`([a-z_]+/[\w/]+\.(?:py|md))`", design)
    assert len(named) > 20
    assert [each for each in named if not (ROOT / "streamlog" / each).exists()] == []


def test_the_file_map_names_each_module_in_its_row() -> None:
    design = (ROOT / "streamlog" / "DESIGN.md").read_text("utf-8")
    rows = re.findall(r"^\| `([^`]+/)` \| (.*) \|$", design, re.M)
    named = {where: set(re.findall(r"`([a-z_0-9]+)`", what)) for where, what in rows}
    modules = {
        where: {path.stem for path in (ROOT / "streamlog" / where).glob("*.py")}
        for where in named.keys() - {"streamlog/", "decisions/"}
    }
    modules["streamlog/"] = {path.stem for path in (ROOT / "streamlog").glob("*.py")}
    packages = {path.parent.name for path in (ROOT / "streamlog").rglob("__init__.py")}
    assert packages <= {where.split("/")[-2] for where in named}
    for where, there in modules.items():
        assert named[where] == there - {"__init__", "__main__"}, where


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_block_that_is_not_run_states_a_reason(page: Path) -> None:
    marked = re.findall(r"<!-- not run(.*?)-->", page.read_text("utf-8"))
    assert all(text.startswith(": ") and len(text) > 6 for text in marked)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_output_of_a_spark_example_is_shown_below_it(page: Path) -> None:
    silent = [
        block.line
        for block in blocks(page)
        if "streamlog.spark" in block.code
        and block.reason is None
        and not (block.output and ("print(" in block.code or ".show()" in block.code))
    ]
    assert silent == []


# Variables and the working directory persist from block to block, as in a reader's shell.
_BASH = """
set -euo pipefail
if [ -e "$STATE/variables" ]; then . "$STATE/variables"; cd "$(cat "$STATE/directory")"; fi
{code}
declare -px | grep -v -e ' STATE=' -e ' BASH' -e '-r ' >"$STATE/variables"
pwd >"$STATE/directory"
"""
_PYTHON = """
. "$STATE/variables"; cd "$(cat "$STATE/directory")"
exec python "$STATE/block.py"
"""


def _needs_spark(page: Path) -> bool:
    return any("streamlog.spark" in block.code for block in blocks(page) if block.reason is None)


RUN_PAGES = [
    pytest.param(page, id=name(page), marks=[pytest.mark.spark] if _needs_spark(page) else [])
    for page in PAGES
    if any(block.reason is None for block in blocks(page))
]


@pytest.mark.parametrize("page", RUN_PAGES)
def test_every_block_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    state, place = tmp_path / "state", tmp_path / "place"
    state.mkdir()
    place.mkdir()
    (place / "tests").symlink_to(ROOT / "tests")  # a reader runs it in the checkout
    tools = Path(sys.executable).parent
    environment = {
        **os.environ,
        "STATE": str(state),
        "PATH": f"{tools}:{os.environ['PATH']}",
        "TMPDIR": str(tmp_path),
    }
    ran = 0
    for block in [Block("bash", ":", 0, None), *blocks(page)]:
        if block.reason is not None:
            continue
        (state / "block.py").write_text(block.code, encoding="utf-8")
        script = _PYTHON if block.language == "python" else _BASH.replace("{code}", block.code)
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=place,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        told = f"{name(page)}:{block.line}\n{block.code}\n{done.stdout}"
        assert done.returncode == 0, told + done.stderr
        if block.output is not None:
            shown = re.escape(block.output.strip()).replace("…", ".*")
            assert re.fullmatch(shown, done.stdout.strip()), told
        ran += 1
    assert ran > 1
