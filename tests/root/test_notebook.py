"""In a notebook, roots, topics and partitions are small tables."""

from pathlib import Path

from streamlog import LogManager, PartitionLog, Record
from streamlog.root.notebook import html_table


def test_a_root_a_topic_and_a_partition_are_tables(tmp_path: Path) -> None:
    path = tmp_path / "<root>"
    with LogManager.open(path, create=True) as manager:
        manager.create_topic("orders", 2)
        manager.log("orders", 1).append([Record(value=b"x")] * 1234)
        root = manager._repr_html_()
        assert root is not None
        assert "<td>orders</td><td>2</td><td>1,234</td>" in root
        assert "&lt;root&gt;" in root
        assert "<root>" not in root
        topic = manager.describe("orders")._repr_html_()
        assert "<tr><td>1</td><td>0</td><td>1,234</td><td>1,234</td><td>1</td>" in topic
        assert topic.count("<tr>") == 3
    assert manager._repr_html_() is None
    with PartitionLog.open(path / "orders-1") as log:
        shown = log._repr_html_()
    assert "orders-1 in " in shown
    assert "<td>1,234</td>" in shown
    assert log._repr_html_() == shown  # a closed one still says what it was


def test_cells_are_text() -> None:
    assert "&lt;b&gt;&amp;&quot;" in html_table("x", ["y"], [['<b>&"']])
