"""The wheel holds only the package, Spark's module and the documents that `--help` refers to."""

import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.meta.repository import PACKAGE, ROOT, modules
from tests.meta.test_documents import PAGES, links

DOCUMENTS = {
    "streamlog/cli/JSON.md",
    "streamlog/handover/HANDOVER.md",
    "streamlog/spark/OPTIONS.md",
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    path = build("--wheel", tmp_path_factory.mktemp("wheel"))
    assert path.name.startswith("pyspark_streamlog-")
    return zipfile.ZipFile(path)


def build(what: str, target: Path) -> Path:
    command = [sys.executable, "-m", "build", what, "--no-isolation", "--outdir", target, ROOT]
    subprocess.run(command, check=True, capture_output=True)
    (path,) = target.iterdir()
    return path


def members(wheel: zipfile.ZipFile) -> set[str]:
    return {name for name in wheel.namelist() if ".dist-info/" not in name}


def test_wheel_holds_the_modules_and_few_files_more(wheel: zipfile.ZipFile) -> None:
    expected = {
        path.relative_to(ROOT).as_posix() for path in modules() if "_autoload" not in path.parts
    }
    extra = {"pyspark_streamlog.py", "streamlog/py.typed", "streamlog/server.properties"}
    extra.add("streamlog/protocol/apis.json")
    templates = PACKAGE / "web" / "templates"
    extra |= {path.relative_to(ROOT).as_posix() for path in templates.iterdir()}
    assert members(wheel) == expected | extra | DOCUMENTS


def test_wheel_has_the_module_spark_looks_for(wheel: zipfile.ZipFile) -> None:
    source = PACKAGE / "spark" / "_autoload" / "pyspark_streamlog.py"
    assert wheel.read("pyspark_streamlog.py") == source.read_bytes()


def test_wheel_has_no_tests(wheel: zipfile.ZipFile) -> None:
    tops = {Path(name).parts[0] for name in members(wheel)}
    assert tops == {"streamlog", "pyspark_streamlog.py"}


def test_wheel_has_the_documents_that_help_names(wheel: zipfile.ZipFile) -> None:
    texts = [path.read_text() for path in (PACKAGE / "cli").glob("*.py")]
    named = {name for text in texts for name in re.findall(r"streamlog/\S+\.md", text)}
    assert named
    assert named <= members(wheel)


def test_wheel_makes_the_command(wheel: zipfile.ZipFile) -> None:
    (entry_points,) = (name for name in wheel.namelist() if name.endswith("entry_points.txt"))
    assert "streamlog = streamlog.cli.main:main" in wheel.read(entry_points).decode()


def test_source_archive_has_the_pages_their_links_and_what_make_needs(tmp_path: Path) -> None:
    with tarfile.open(build("--sdist", tmp_path)) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {*PAGES, *(target for page in PAGES for target, _ in links(page))}
    wanted |= {ROOT / "Makefile", ROOT / ".ci" / "set-up", ROOT / ".ci" / "environment"}
    assert {path.relative_to(ROOT).as_posix() for path in wanted} <= packed


def test_pins_come_with_hashes_and_without_an_index() -> None:
    for path in sorted((ROOT / "conf").glob("requirements-*.txt")):
        text = path.read_text()
        pins = [line for line in text.splitlines() if line and not line.startswith(" ")]
        assert pins
        assert all("==" in pin and pin.endswith("\\") for pin in pins), path
        assert "://" not in text
        assert "--index" not in text
        assert "--find-links" not in text


def test_demo_pins_are_among_those_of_the_tests() -> None:
    demo, test = (
        set((ROOT / "conf" / f"requirements-{name}.txt").read_text().splitlines())
        for name in ("demo", "test")
    )
    assert {line for line in demo if "==" in line} <= {line for line in test if "==" in line}
