"""The frame of the command: shared options, errors in two lines, exit codes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from streamlog.cli import main as main_module
from streamlog.cli.main import streamlog as command
from tests.support.cli import ok, start, streamlog


def two_lines(error: str) -> tuple[str, str]:
    lines = error.splitlines()
    assert len(lines) == 2, error
    assert lines[0].startswith("Error: ")
    assert lines[1].startswith("Try: ")
    return lines[0].removeprefix("Error: "), lines[1].removeprefix("Try: ")


def test_root_and_format_are_taken_before_and_after_the_verb(root: Path) -> None:
    before = ok("--path", root, "--format", "json", "offsets", "orders")
    after = ok("offsets", "orders", "--path", root, "--format", "json")
    between = ok("topics", "--path", root, "--format", "json", "list")
    assert before.out == after.out
    assert between.out.startswith(b"[{")


def test_the_option_closest_to_the_verb_wins(root: Path) -> None:
    far, near = ("--path", "/nowhere", "--format", "json"), ("--path", root, "--format", "ndjson")
    assert len(ok(*far, "offsets", *near).rows) == 3


def test_the_environment_names_the_root(root: Path) -> None:
    assert streamlog("topics", "list", STREAMLOG_PATH=str(root)).rows[0]["topic"] == "orders"


def test_without_a_root_the_error_says_how_to_name_one() -> None:
    ran = streamlog("topics", "list")
    what, cure = two_lines(ran.error)
    assert ran.code == 2
    assert "--path ROOT or set STREAMLOG_PATH" in what
    assert cure == "streamlog topics list --help"


@pytest.mark.parametrize(
    "arguments",
    [
        ("nonsense",),
        ("cat",),
        ("cat", "orders", "--nonsense"),
        ("cat", "orders", "--partition", "x"),
        ("cat", "orders", "--format", "xml"),
        ("cat", "orders", "--format", "json", "--output-format", "%s"),
        ("cat", "orders", "--format", "json", "--follow"),
        ("cat", "orders", "--offset", "somewhere"),
        ("cat", "orders", "--output-format", "%z"),
        ("cat", "orders", "--isolation-level", "none"),
        ("offsets", "orders", "--time", "noon"),
        ("produce", "orders", "--key-separator", ""),
        ("produce", "orders", "--key-separator", ":", "--format", "ndjson"),
        ("produce", "orders", "--compression.type", "brotli"),
        ("topics", "create", "x", "--config", "retention.ms"),
        ("topics", "create", "x", "--config", "retention.sm=1"),
        ("topics", "create", "x", "--partitions", "0"),
        ("topics", "create", "bad/name"),
        ("topics", "describe", "missing"),
        ("topics", "delete", "missing"),
        ("cat", "missing"),
        ("offsets", "missing"),
        ("produce", "missing"),
        ("cat", "./nowhere"),
        ("cat", "orders", "-p", "9"),
        ("produce", "orders", "-p", "9"),
    ],
)
def test_wrong_use_prints_two_lines_and_exits_with_2(
    root: Path, arguments: tuple[str, ...]
) -> None:
    ran = streamlog("--path", root, *arguments, stdin=b"x\n")
    two_lines(ran.error)
    assert ran.code == 2
    assert ran.out == b""


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [
        ("topics create", ("x", "--config", "retention.ms=-2")),
        ("produce", ("orders", "--encoding", "hex")),
        ("delete-records", ("orders:0:9",)),
        ("readers forget", ("nobody",)),
    ],
)
def test_without_better_advice_the_usage_of_the_verb_is_printed(
    root: Path, verb: str, arguments: tuple[str, ...]
) -> None:
    ran = streamlog("--path", root, *verb.split(" "), *arguments, stdin=b"x\n")
    assert two_lines(ran.error)[1] == f"streamlog {verb} --help"
    assert ran.code == 2


def test_the_list_of_verbs_says_of_each_a_whole_thing() -> None:
    for group in ((), ("topics",), ("readers",)):
        verbs = ok(*group, "--help").out.decode().partition("Commands:")[2]
        told = [line for line in verbs.splitlines() if not line.startswith("  doctor")]
        assert not any(line.endswith("...") for line in told)


def test_the_package_is_the_command_too() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "streamlog", "nonsense"], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 2
    assert two_lines(ran.stderr)[1] == "streamlog --help"


def test_a_file_instead_of_a_root_is_wrong_use(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a root")
    for arguments in (("topics", "list"), ("topics", "create", "x"), ("cat", "x")):
        ran = streamlog("--path", tmp_path / "file", *arguments)
        two_lines(ran.error)
        assert ran.code == 2


def test_a_misspelt_verb_names_the_nearest() -> None:
    assert "produce" in streamlog("prodcue").error


def test_bare_command_prints_help_and_is_wrong_use() -> None:
    ran = streamlog()
    assert ran.code == 2
    assert "Commands:" in ran.error


def test_version_lists_compatible_versions() -> None:
    names = [line.split()[0] for line in ok("--version").out.decode().splitlines()]
    assert names == ["streamlog", "python", "pyspark", "pyarrow", "numpy", "numba"]


def verbs() -> list[tuple[str, ...]]:
    topics = command.commands["topics"]
    return [(name,) for name in command.commands] + [("topics", sub) for sub in topics.commands]


@pytest.mark.parametrize("verb", verbs(), ids=" ".join)
def test_every_verb_explains_itself_and_its_options(verb: tuple[str, ...]) -> None:
    text = ok(*verb, "--help").out.decode()
    assert "Example" in text or verb in (("topics",), ("readers",))
    assert "--path ROOT" in text
    assert "--quiet" in text
    assert "\b" not in text


def test_a_defect_prints_two_lines(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr(main_module.streamlog, "invoke", broken)
    ran = streamlog("topics", "list", "--path", root)
    what, cure = two_lines(ran.error)
    assert ran.code == 1
    assert "a bug in streamlog): RuntimeError: boom" in what
    assert "STREAMLOG_DEBUG=1" in cure


def test_names_in_errors_cannot_steer_the_terminal(root: Path) -> None:
    ran = streamlog("--path", root, "cat", "\x1b[31mred")
    assert "\x1b" not in ran.error


def test_quiet_leaves_out_remarks(root: Path) -> None:
    assert ok("topics", "delete", "orders", "--path", root, "--quiet").error == ""


def test_without_quiet_the_result_is_printed(root: Path) -> None:
    assert ok("topics", "delete", "orders", "--path", root).error == "deleted topic orders\n"


def test_the_shell_completes_verbs_options_and_topics(root: Path) -> None:
    def completions(words: str) -> list[str]:
        asked = {"_STREAMLOG_COMPLETE": "bash_complete", "COMP_WORDS": words}
        asked["COMP_CWORD"] = str(len(words.split(" ")) - 1)
        process = start(env={**os.environ, **asked, "STREAMLOG_PATH": str(root)})
        out, _ = process.communicate(timeout=60)
        return [line.split(",")[1] for line in out.decode().splitlines()]

    assert completions("streamlog top") == ["topics"]
    assert completions("streamlog cat or") == ["orders"]
    assert "--compression.type" in completions("streamlog produce --comp")
