"""The process that the demo kills: `python -m streamlog.demo.writer ROOT ROWS COMMITS`.

It writes all orders, always from the first one on: what an earlier life has committed is recognized
by its version. It prints a line for each commit.
"""

import sys

from streamlog.arrow.table_writer import write_table
from streamlog.demo.orders import ORDERS, orders

__all__ = ["REPEATED", "WRITTEN"]

WRITTEN, REPEATED = "written", "repeated"


def _write(root: str, rows: int, commits: int) -> None:
    for version in range(commits):
        start, end = (rows * number // commits for number in (version, version + 1))
        done = write_table(orders(start, end), root, ORDERS, txn_app_id="demo", txn_version=version)
        sys.stdout.write(f"{REPEATED if done.is_replay else WRITTEN}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _write(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
