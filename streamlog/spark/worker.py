"""What a Python worker of Spark does once in its life.

Spark's daemon runs a full garbage collection after every task of a worker. With the tens of
thousands of objects that imports leave behind this takes longer (45 ms) than a small task.
"""

import gc

__all__ = ["settle"]

_settled_pids: set[int] = set()


def settle(pid: int) -> None:
    """Take what lives now out of the sight of later collections; once per process.

    To be called at the end of a worker's first task, when everything it needs is imported.

    Args:
        pid: This process: a forked child starts anew.
    """
    if pid not in _settled_pids:
        _settled_pids.clear()
        _settled_pids.add(pid)
        gc.collect()
        gc.freeze()
