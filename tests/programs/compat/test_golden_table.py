"""We read every golden folder as Kafka did, and the table detects differences."""

from typing import Any

import pytest

from tests.programs.compat import golden_table
from tests.programs.compat.golden_table import rows

pytestmark = pytest.mark.compat


def test_every_folder_passes() -> None:
    table = list(rows())
    assert [str(row) for row in table if row.differing] == []
    assert len(table) == 198
    assert sum(row.batches for row in table) == 2885
    assert sum(row.records for row in table) == 40065


@pytest.mark.parametrize("kind", ["batch", "record"])
def test_one_wrong_answer_is_detected(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    field = {"batch": "maxTimestamp", "record": "value"}[kind]
    right = golden_table.json_lines

    def wrong(name: str) -> list[dict[str, Any]]:
        lines = right(name)
        next(line for line in lines if line["kind"] == kind)[field] = "?"
        return lines

    monkeypatch.setattr(golden_table, "json_lines", wrong)
    assert next(rows()).differing == 1
