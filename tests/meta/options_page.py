"""The page of Spark options, generated from the table that the format itself uses.

python -m tests.meta.options_page        # updates streamlog/spark/OPTIONS.md
"""

import re
from typing import Final

from streamlog.spark.options import OPTIONS, Option, Use
from tests.meta.repository import PACKAGE

PAGE: Final = PACKAGE / "spark" / "OPTIONS.md"
SECTIONS: Final = (("Reading", Use.READ), ("Writing", Use.WRITE))

_TABLE = re.compile(r"(<!-- (?P<section>[A-Z]\w+) -->\n).*?(?=<!-- end -->)", re.S)


def with_tables(page: str) -> str:
    """Return the page with regenerated tables."""
    tables = {name: _table(use) for name, use in SECTIONS}
    return _TABLE.sub(lambda found: found[1] + tables[found["section"]], page)


def _table(use: Use) -> str:
    rows = ["| option | where | default | what it does |", "|---|---|---|---|"]
    rows += [_row(each, each.use & use) for each in OPTIONS if each.use & use]
    return "".join(f"{row}\n" for row in rows)


def _row(option: Option, use: Use) -> str:
    where = {
        Use.READ: "batch, stream",
        Use.WRITE: "batch, stream",
        Use.BATCH_READ: "batch",
        Use.BATCH_WRITE: "batch",
        Use.STREAM_READ: "stream",
        Use.STREAM_WRITE: "stream",
    }[use]
    cells = (f"`{option.name}`", where, option.default or "", option.doc)
    return "| " + " | ".join(each.replace("|", r"\|") for each in cells) + " |"


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
