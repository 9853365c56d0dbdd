"""Fixtures: a log root on the disk; the Spark session is `tests/conftest.py`'s."""

from tests.support.log_root import root

__all__ = ["root"]
