"""Jupyter: the notebooks run, and a stream goes on after its session, and its kernel, has ended."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import nbformat
import pyarrow as pa
import pytest
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient

import streamlog
from tests.meta.repository import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.slow]

NOTEBOOKS = ROOT / "examples" / "notebooks"
SHOWN = {  # what the last cells print
    "first-steps": ["['bob', 'cem']\n['bob', 'cem']\n", "['bob', 'cem', 'dan']\n"],
    "dead-broker": ["group-a codec-lz4 0 195 lag 25"],
    "crash-testing": ["twice  value='order 2'", "exactly once\n"],
}
CELL = """
import streamlog.spark

spark = streamlog.spark.session()
words = spark.readStream.format("streamlog").option("path", "root").option("subscribe", "words")
words = words.option("startingOffsets", "earliest").load().select("value")
sink = words.writeStream.format("streamlog").option("path", "root").option("topic", "copy")
query = sink.option("checkpointLocation", "cp").trigger(processingTime="100 milliseconds").start()
query.processAllAvailable()
print(streamlog.read_table("root", "copy").num_rows)
"""


@pytest.fixture(autouse=True)
def short_lived_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    monkeypatch.setenv("PYDEVD_DISABLE_FILE_VALIDATION", "1")


def printed(cell: nbformat.NotebookNode) -> str:
    return "".join(each.get("text", "") for each in cell.get("outputs", ()))


def test_notebooks_are_kept_without_outputs() -> None:
    found = sorted(NOTEBOOKS.glob("*.ipynb"))
    assert {path.stem for path in found} == SHOWN.keys()
    for path in found:
        for cell in nbformat.read(path, 4).cells:
            assert not cell.get("outputs") and not cell.get("execution_count"), path


@pytest.mark.parametrize("name", SHOWN)
def test_a_notebook_runs(name: str, tmp_path: Path) -> None:
    place = tmp_path / "examples" / "notebooks"
    place.mkdir(parents=True)
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    notebook = nbformat.read(shutil.copy(NOTEBOOKS / f"{name}.ipynb", place), 4)
    NotebookClient(notebook, timeout=500, resources={"metadata": {"path": str(place)}}).execute()
    text = "\n".join(map(printed, notebook.cells))
    assert [part for part in SHOWN[name] if part not in text] == [], text


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[KernelManager]:
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(cwd=str(tmp_path))
    yield manager
    manager.shutdown_kernel(now=True)


@contextmanager
def connected(manager: KernelManager) -> Iterator[Callable[[str], str]]:
    """Yield a function that runs code in the kernel, and returns what it printed."""
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(timeout=120)

    def run(code: str) -> str:
        said: list[str] = []

        def note(message: dict) -> None:
            content = message["content"]
            if message["msg_type"] == "stream" and content["name"] == "stdout":
                said.append(content["text"])

        reply = client.execute_interactive(code, timeout=400, output_hook=note)
        assert reply["content"]["status"] == "ok", reply["content"]
        return "".join(said)

    yield run
    client.stop_channels()


def test_a_stream_goes_on_after_a_stop_and_after_a_restart(
    kernel: KernelManager, tmp_path: Path
) -> None:
    root = str(tmp_path / "root")
    with streamlog.LogManager.open(root, create=True) as manager:
        manager.create_topic("words", 2)
        manager.create_topic("copy")

    def append(*words: str) -> None:
        streamlog.write_table(pa.table({"value": list(words)}), root, "words")

    append("one", "two")
    with connected(kernel) as run:
        assert run(CELL) == "2\n"
        append("three")
        assert run("spark.stop()" + CELL) == "3\n"  # the same process, another session
    append("four")
    kernel.restart_kernel(now=True)  # kills it, in the middle of a query that nothing has stopped
    with connected(kernel) as run:
        assert run(CELL) == "4\n"
    values = [value.decode() for value in streamlog.read_table(root, "copy")["value"].to_pylist()]
    assert sorted(values) == ["four", "one", "three", "two"]
