"""Heavy libraries are imported only by the code that uses them."""

import json
import subprocess
import sys
import time

import pytest

from tests.meta.repository import ROOT

HEAVY = {"numpy", "numba", "pyarrow", "pyspark", "pandas"}


def loaded_by(statement: str) -> set[str]:
    """Return the modules that a fresh interpreter has loaded after `statement`."""
    code = f"{statement}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_import_streamlog_loads_nothing_heavy() -> None:
    assert loaded_by("import streamlog") & HEAVY == set()


def test_import_streamlog_errors_loads_nothing_heavy() -> None:
    assert loaded_by("from streamlog import StreamLogError, TopicPartition") & HEAVY == set()


def test_the_message_codec_needs_nothing_heavy() -> None:
    loaded = loaded_by("import streamlog.protocol.internal_topics")
    assert "streamlog.protocol.messages" in loaded
    assert loaded & HEAVY == set()


def test_spark_source_is_planned_without_numba() -> None:
    loaded = loaded_by("import streamlog.spark.source")
    assert "numba" not in loaded
    assert "streamlog.records.kernels" not in loaded


def test_a_server_starts_without_what_only_maintenance_and_numbers_of_records_need() -> None:
    loaded = loaded_by("import streamlog.cli.serve")
    assert "streamlog.gateway.server" in loaded
    assert loaded & (HEAVY - {"numpy"} | {"llvmlite", "cryptography", "rich"}) == set()
    assert loaded & {"streamlog.maintenance", "streamlog.cleaner", "streamlog.spark"} == set()


def test_the_module_that_spark_imports_everywhere_is_cheap() -> None:
    """Spark imports every `pyspark_…` module when it meets an unknown format."""
    path = ROOT / "streamlog" / "spark" / "_autoload"
    loaded = loaded_by(f"import sys; sys.path.insert(0, {str(path)!r}); import pyspark_streamlog")
    assert "numba" not in loaded


@pytest.mark.parametrize(
    "verb", ["", "topics", "topics create", "produce", "cat", "doctor", "report", "ui"]
)
def test_help_loads_nothing_heavy(verb: str) -> None:
    arguments = [*verb.split(), "--help"]
    statement = (
        "from streamlog.cli.main import run\n"
        "import contextlib, io\n"
        "with contextlib.redirect_stdout(io.StringIO()):\n"
        f"    assert run({arguments!r}) == 0"
    )
    start = time.monotonic()
    loaded = loaded_by(statement)
    print(f"streamlog {' '.join(arguments)}: {(time.monotonic() - start) * 1000:.0f} ms")
    assert (
        loaded
        & (
            HEAVY
            | {"rich", "jinja2", "starlette", "uvicorn", "streamlog.root", "streamlog.partition"}
        )
        == set()
    )
