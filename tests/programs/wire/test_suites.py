"""What the commands that run suites of Kafka clients make of their output."""

import hashlib
import json
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.programs.wire import kafka_tools, librdkafka, pytest_suite, sources, suites
from tests.programs.wire.franz_go import outcomes
from tests.programs.wire.report_card import page
from tests.programs.wire.sources import Commit, Sdist
from tests.programs.wire.suites import Outcome, Run


def _event(action: str, test: str = "", output: str = "") -> str:
    return json.dumps({"Action": action, "Test": test, "Output": output})


def test_outcomes_of_go_test() -> None:
    lines = [
        _event("run", "TestA"),
        _event("output", "TestA", "noise\n"),
        _event("output", "TestA", "    group_test.go:12: got 1, expected 2\n"),
        _event("output", "TestB", "    txn_test.go:9: no server\n"),
        _event("skip", "TestB"),
        _event("fail", "TestA"),
        _event("output", "TestC/one", "    txn_test.go:9: completed\n"),
        _event("pass", "TestC/one"),
        _event("fail"),
        "not JSON",
    ]
    assert list(outcomes(lines)) == [
        Outcome("TestB", "skipped", "no server"),
        Outcome("TestA", "failed", "got 1, expected 2"),
        Outcome("TestC/one", "passed"),
    ]


def _run(*found: Outcome, exit_code: int = 0) -> Run:
    return Run("some v1", "python -m tests.some", "2026-01-02", 3.4, exit_code, list(found))


def test_a_kept_run_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suites, "CACHE", tmp_path)
    run = _run(Outcome("a", "passed"), Outcome("b", "failed", "why"), exit_code=1)
    run.save()
    assert Run.load(tmp_path / "some.json") == run


def test_the_page_lists_failures_and_skips() -> None:
    text = page([_run(Outcome("a", "passed"), Outcome("b", "failed", "x|y"), exit_code=1)])
    assert "| some v1 | 1 | 1 | 0 | 0 | 2026-01-02 |" in text
    assert "| `b` | failed | x\\|y |" in text
    assert "`a`" not in text


@pytest.mark.parametrize(
    ("found", "exit_code", "complaint"),
    [
        ([Outcome("a", "passed")], 0, ""),
        ([Outcome("a", "passed"), Outcome("known", "failed")], 1, ""),
        ([Outcome("a", "passed"), Outcome("group/one", "failed")], 1, ""),
        ([Outcome("a", "passed"), Outcome("group", "failed")], 1, "without a reason: group"),
        ([Outcome("a", "passed"), Outcome("b", "failed")], 1, "failed without a reason: b"),
        ([Outcome("a", "passed"), Outcome("b", "omitted")], 0, "omitted without a reason: b"),
        ([Outcome("a", "passed"), Outcome("b", "skipped")], 0, ""),
        ([Outcome("known", "passed")], 0, "stale reason, nothing fails: known"),
        ([Outcome("group/one", "passed")], 0, "stale reason, nothing fails: group/*"),
        ([Outcome("group/one", "passed"), Outcome("group/two", "failed")], 1, ""),
        ([Outcome("a", "passed")], 1, "broke off with exit code 1"),
        ([Outcome("a", "passed"), Outcome("known", "failed")], 2, "broke off with exit code 2"),
        ([Outcome("a", "skipped")], 0, "no test passed"),
        ([], 0, "no test passed"),
    ],
)
def test_what_makes_a_run_a_failure(
    found: list[Outcome], exit_code: int, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    reasons = {"known": "why it fails", "group/*": "why these fail"}
    code = suites.run_suite(
        "some v1", "tests.some", lambda: (exit_code, found), is_whole=False, reasons=reasons
    )
    printed = capsys.readouterr()
    assert "some v1: " in printed.out
    assert (code == 1) == bool(printed.err) == bool(complaint)
    assert complaint in printed.err


def test_a_whole_run_finds_reasons_without_a_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(suites, "CACHE", tmp_path)
    found = [Outcome("a", "passed"), Outcome("group/one", "failed", "noise")]
    reasons = {"group/*": "one broker", "group/one*": "this one", "gone": "x"}
    run = 1, found
    code = suites.run_suite("some v1", "tests.some", lambda: run, is_whole=True, reasons=reasons)
    assert code == 1
    assert capsys.readouterr().err.splitlines() == ["stale reason, nothing fails: gone"]
    kept = Run.load(tmp_path / "some.json")
    assert kept.outcomes[1].reason == "this one"
    assert "| `group/one` | failed | noise | this one |" in page([kept])


def test_outcomes_of_pytest(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(
        """
import pytest

@pytest.fixture
def broken():
    yield
    raise OSError("teardown")

def test_passes(): pass
def test_breaks(broken): pass

class TestGroup:
    @pytest.mark.parametrize("n", [1, 2])
    def test_counts(self, n): assert n == 1, "too many"
    @pytest.mark.skip(reason="no server")
    def test_asks(self): pass
""",
        "utf-8",
    )
    code, found = pytest_suite.run_pytest(tmp_path, ["test_some.py"], {}, package="")
    assert code == 1
    assert {each.test: (each.result, each.note) for each in found} == {
        "test_some::test_passes": ("passed", ""),
        "test_some::test_breaks": ("failed", 'failed on teardown with "OSError: teardown"'),
        "test_some.TestGroup::test_counts[1]": ("passed", ""),
        "test_some.TestGroup::test_counts[2]": ("failed", "AssertionError: too many assert 2 == 1"),
        "test_some.TestGroup::test_asks": ("skipped", "no server"),
    }


def test_a_source_distribution_is_what_was_pinned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "CACHE", tmp_path / "cache")
    package, links = tmp_path / "some-1.0", tmp_path / "links"
    package.mkdir()
    links.mkdir()
    build = '[build-system]\nrequires = []\nbuild-backend = "setuptools.build_meta"\n'
    project = '[project]\nname = "some"\nversion = "1.0"\n[tool.setuptools]\npackages = []\n'
    (package / "pyproject.toml").write_text(build + project, "utf-8")
    (package / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: some\nVersion: 1.0\n", "utf-8")
    (package / "test_it.py").write_text("first", "utf-8")
    with tarfile.open(links / "some-1.0.tar.gz", "w:gz") as archive:
        archive.add(package, "some-1.0")
    digest = hashlib.sha256((links / "some-1.0.tar.gz").read_bytes()).hexdigest()
    with pytest.raises(OSError, match=r"some 1\.0: (?s:.*)DO NOT MATCH THE HASHES"):
        Sdist("some", "1.0", "0" * 64, links).fetch()
    folder = Sdist("some", "1.0", digest, links).fetch()
    assert (folder / "test_it.py").read_text("utf-8") == "first"
    (links / "some-1.0.tar.gz").unlink()
    assert Sdist("some", "1.0", digest, links).fetch() == folder  # from the cache


def test_a_commit_comes_from_a_mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*arguments: str) -> str:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        command = ["git", "-C", str(tmp_path / "mirror"), *identity, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    monkeypatch.setattr(sources, "CACHE", tmp_path / "cache")
    (tmp_path / "mirror").mkdir()
    git("init", "--quiet")
    (tmp_path / "mirror" / "test_it.py").write_text("first", "utf-8")
    git("add", ".")
    git("commit", "--quiet", "--message=first")
    commit = Commit("/nowhere/suite", git("rev-parse", "HEAD"), "SUITE_REPOSITORY")
    with pytest.raises(OSError, match="/nowhere/suite"):
        commit.fetch()
    monkeypatch.setenv("SUITE_REPOSITORY", str(tmp_path / "mirror"))
    assert (commit.fetch() / "test_it.py").read_text("utf-8") == "first"


def test_outcomes_of_junit() -> None:
    def line(result: str, note: str = "") -> str:
        fields = {"test": "T.a", "index": "[2]", "result": result, "brokers": "1", "note": note}
        return json.dumps(fields)

    trace = (
        "org.opentest4j.AssertionFailedError: expected: <1>\n but was: <2>\n\tat org.A.b(A.java)"
    )
    assert [kafka_tools.outcome(each) for each in (line("passed"), line("failed", trace))] == [
        Outcome("T.a[2]", "passed"),
        Outcome("T.a[2]", "failed", "AssertionFailedError: expected: <1> but was: <2>"),
    ]
    assert kafka_tools.outcome(line("skipped", "needs 2 disks")).note == "needs 2 disks"


TABLE = """
struct test tests[] = {
    {.name = "<MAIN>", .flags = TEST_F_LOCAL},
    _TEST(0004_conf, TEST_F_LOCAL),
    _TEST(0012_produce_consume, 0),
    _TEST(0107_topic_recreate, 0, TEST_BRKVER_TOPIC_ADMINAPI, .scenario = "noautocreate"),
    _TEST(0171_share_consumer_consume, 0, TEST_BRKVER(4, 2, 0, 0)),
    {NULL}
};
"""


def test_librdkafkas_table_of_programs() -> None:
    given = librdkafka.programs(TABLE)
    assert [each.needs_no_broker for each in given] == [True, False, False, False]
    jobs = librdkafka.jobs_of(given, [])
    assert [job.name for job in jobs] == ["0012-default", "0107-noautocreate"]
    assert [each.test for each in librdkafka.omitted(given)] == ["0171_share_consumer_consume"]
    (chosen,) = librdkafka.jobs_of(given, ["0171"])
    assert chosen.programs == given[-1:]


def test_outcomes_of_librdkafkas_programs() -> None:
    group = [librdkafka.Program(f"000{n}_x", "0", "default") for n in range(4)]
    text = (
        "\x1b[36m================= Test 0000_x PASSED =================\n"
        "[0001_x    /  0.000s] WARN: SKIPPING TEST: no headers\n"
        "================= Test 0001_x SKIPPED =====\n"
        "[0003_x    /  0.000s] WARN: SKIPPING TEST: filtered\n"
        '### Test "0002_x" failed at a.c:7:main() at Mon: ###\nexpected 2\n'
    )
    assert librdkafka.outcomes(text, group[:2], "part") == [
        Outcome("0000_x/part", "passed"),
        Outcome("0001_x/part", "skipped", "no headers"),
    ]
    assert librdkafka.outcomes(text, group[2:]) == [
        Outcome("0002_x", "failed", "a.c:7:main() expected 2"),
        Outcome("0003_x", "skipped", "filtered"),
    ]
