"""What a Python process of Spark does at the start of its life.

Spark's daemon runs a full garbage collection after every task of a worker, whatever the task: one
of a source or a sink, or the planning or committing of a trigger. With the tens of thousands of
objects that imports leave behind this takes longer (45 ms) than a small task.
"""

import gc

__all__ = ["settle"]

_TIMES = 2  # Spark itself imports Arrow behind our first task

_calls: dict[int, int] = {}


def settle(pid: int) -> None:
    """Take what lives now out of the sight of later collections; twice per process.

    To be called at the end of a worker's task, when what it needs is imported.

    Args:
        pid: This process: a forked child starts anew.
    """
    done = _calls.get(pid, 0)
    if done < _TIMES:
        _calls.clear()
        _calls[pid] = done + 1
        gc.collect()
        gc.freeze()
