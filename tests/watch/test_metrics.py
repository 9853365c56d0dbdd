"""Metrics as Prometheus' own parser reads them, published as text, as a file and on a port."""

import json
import os
import re
import socket
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from streamlog.arrow.views import open_read_roots
from streamlog.errors import UnavailableError
from streamlog.query.offsets import parse_source_offset
from streamlog.records.record import Record
from streamlog.root.manager import LogManager
from streamlog.root.readers import Reader
from streamlog.watch.metrics import METRICS, LogMetrics, Publisher, text_of
from tests.meta.repository import ROOT
from tests.support.cli import ok, start, streamlog

ODD = 'a "quoted" \\ group\n'


@pytest.fixture
def root(tmp_path: Path) -> str:
    path = str(tmp_path / "root")
    with LogManager.open(path, create=True) as manager:
        manager.create_topic("orders", 2)
        records = [Record(value=b"x", timestamp=1_000 * number) for number in range(6)]
        manager.log("orders", 0).append(records)
        manager.delete_records("orders", 0, 1)
    return path


def metrics_of(root: str) -> LogMetrics:
    position = parse_source_offset({"orders": {"0": 4}})
    readers = [Reader(name=ODD, position=position, committed_ms=7_500)]
    return LogMetrics(open_read_roots([root]), lambda: readers)


def parsed(text: bytes) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Return the samples by name, after a check of their kinds and labels against the table."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            row = METRICS[sample.name]
            assert (family.type, set(sample.labels)) == (row.kind, set(row.labels)), sample
            assert family.documentation == row.help
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def test_a_log_and_its_readers_in_the_names_of_kafka_exporter(root: str) -> None:
    group = {"consumergroup": ODD, "topic": "orders"}
    first, second = ({"topic": "orders", "partition": each} for each in "01")
    assert parsed(text_of(metrics_of(root))) == {
        "streamlog_up": [({}, 1)],
        "kafka_topic_partitions": [({"topic": "orders"}, 2)],
        "kafka_topic_partition_current_offset": [(first, 6), (second, 0)],
        "kafka_topic_partition_oldest_offset": [(first, 1), (second, 0)],
        "kafka_consumergroup_current_offset": [({**group, **first}, 4)],
        "kafka_consumergroup_current_offset_sum": [(group, 4)],
        "kafka_consumergroup_lag": [({**group, **first}, 2), ({**group, **second}, 0)],
        "kafka_consumergroup_lag_sum": [(group, 2)],
        "streamlog_consumergroup_lag_seconds": [({**group, **first}, 2), ({**group, **second}, 0)],
        "streamlog_consumergroup_position_timestamp_seconds": [({"consumergroup": ODD}, 7.5)],
    }


def test_a_log_that_cannot_be_read_is_not_up_until_it_returns(root: str) -> None:
    metrics = metrics_of(root)
    assert parsed(text_of(metrics))["streamlog_up"] == [({}, 1)]
    os.rename(root, f"{root}.away")
    assert parsed(text_of(metrics)) == {"streamlog_up": [({}, 0)]}
    os.rename(f"{root}.away", root)
    assert parsed(text_of(metrics))["streamlog_up"] == [({}, 1)]
    metrics.close()


def test_a_port_is_measured_at_each_scrape(root: str) -> None:
    publisher = Publisher(metrics_of(root), listen=("127.0.0.1", 0))
    url = f"http://127.0.0.1:{publisher.port}/metrics"

    def lag() -> float:
        with urllib.request.urlopen(url, timeout=30) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=")
            return parsed(answer.read())["kafka_consumergroup_lag_sum"][0][1]

    try:
        assert lag() == 2
        with LogManager.open(root) as manager:
            manager.log("orders", 0).append([Record(value=b"x", timestamp=1)])
        assert lag() == 3
        with pytest.raises(UnavailableError, match="cannot answer scrapes"):
            Publisher(metrics_of(root), listen=("127.0.0.1", publisher.port or 0))
    finally:
        publisher.close()
        publisher.close()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", publisher.port or 0), timeout=5)


def test_a_file_is_replaced_as_a_whole(root: str, tmp_path: Path) -> None:
    file = tmp_path / "streamlog.prom"
    publisher = Publisher(metrics_of(root), textfile=file)
    publisher.write()
    first = file.stat()
    publisher.write()
    assert file.stat().st_ino != first.st_ino  # a rename: a reader of the first one has it whole
    assert first.st_mode & 0o444 == 0o444 & ~umask()
    assert parsed(file.read_bytes())["streamlog_up"] == [({}, 1)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["root", "streamlog.prom"]
    nowhere = Publisher(metrics_of(root), textfile=tmp_path / "missing" / "x.prom")
    with pytest.raises(UnavailableError, match="cannot write the metrics"):
        nowhere.write()


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_the_command_prints_writes_and_answers(root: str, tmp_path: Path) -> None:
    ran = ok("metrics", "--path", root)
    assert parsed(ran.out)["kafka_topic_partitions"] == [({"topic": "orders"}, 2)]
    file = tmp_path / "streamlog.prom"
    ok("metrics", "--path", root, "--textfile", file)
    assert parsed(file.read_bytes())["streamlog_up"] == [({}, 1)]
    process = start("metrics", "--path", root, "--listen", "127.0.0.1:0")
    try:
        assert process.stderr is not None
        url = process.stderr.readline().decode().split()[-1]
        with urllib.request.urlopen(url, timeout=30) as answer:
            assert parsed(answer.read())["streamlog_up"] == [({}, 1)]
    finally:
        process.kill()
        process.communicate()
    for wrong in (("--every", "5s"), ("--listen", "here"), ("--checkpoint", tmp_path)):
        assert streamlog("metrics", "--path", root, *wrong).code == 2


def test_without_the_extra_the_error_says_what_to_install(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(UnavailableError, match="prometheus-client") as caught:
        text_of(metrics_of(root))
    assert "pyspark-streamlog[metrics]" in (caught.value.hint or "")


# ---- the board and the page -------------------------------------------------------------------
BOARD: dict[str, Any] = json.loads((ROOT / "conf" / "grafana-board.json").read_text("utf-8"))
NAME = re.compile(r"\b(?:kafka|streamlog)_\w+")


def queries() -> list[str]:
    asked = [target["expr"] for panel in BOARD["panels"] for target in panel["targets"]]
    return asked + [
        each["query"] for each in BOARD["templating"]["list"] if each["type"] == "query"
    ]


def test_the_board_asks_only_for_what_is_published() -> None:
    for query in queries():
        names = NAME.findall(query)
        assert names
        assert set(names) <= METRICS.keys(), query
        used = {each for name in names for each in METRICS[name].labels}
        asked = set(re.findall(r"(\w+)[=!]~?\"", query))
        asked |= {
            each for part in re.findall(r"by \(([^)]*)\)", query) for each in part.split(", ")
        }
        assert asked <= used, query
        counters = [name for name in names if METRICS[name].kind == "counter"]
        assert all(re.search(rf"(rate|increase)\({name}", query) for name in counters), query


def test_the_panels_of_the_board_have_places_and_names_of_their_own() -> None:
    cells = [
        (column, row)
        for panel in BOARD["panels"]
        for column in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for row in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(column for column, _ in cells) < 24
    for key in ("id", "title"):
        assert len({panel[key] for panel in BOARD["panels"]}) == len(BOARD["panels"])


def test_the_page_has_every_metric() -> None:
    page = (ROOT / "docs" / "watching.md").read_text("utf-8")
    rows = re.findall(r"^\| `((?:kafka|streamlog)_\w+)` \| ([^|]*) \| ([^|]*) \|$", page, re.M)
    assert {name: (labels, help_text) for name, labels, help_text in rows} == {
        name: (", ".join(f"`{label}`" for label in row.labels), row.help)
        for name, row in METRICS.items()
    }
