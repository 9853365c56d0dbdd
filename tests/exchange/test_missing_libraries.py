"""Without the extra `lakehouse`, the formats of tables say what to install."""

import sys
from pathlib import Path

import pytest

from streamlog.errors import InvalidRequestError
from tests.exchange.topics import export, fill, import_into


@pytest.mark.parametrize(
    ("format", "module"), [("delta", "deltalake"), ("iceberg", "pyiceberg.catalog")]
)
def test_the_error_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str, module: str
) -> None:
    fill(tmp_path / "root", "orders", 0, 10)
    monkeypatch.setitem(sys.modules, module, None)
    for act in (
        lambda: export(tmp_path / "root", "shop.orders", format),
        lambda: import_into(tmp_path / "root", "back", "shop.orders", format=format),
    ):
        with pytest.raises(InvalidRequestError, match="not installed") as error:
            act()
        assert "pyspark-streamlog[lakehouse]" in str(error.value)
