"""`streamlog replicas`: the log roots of a replica set."""

from typing import Any

from streamlog.cli.output import Column, Kind, Output, remark
from streamlog.cli.verb import Settings
from streamlog.fs.log_root import LogRoot
from streamlog.replication.root_set import RootSet
from streamlog.root.manager import LogManager
from streamlog.root.read_roots import parse_roots
from streamlog.root.replica_roots import add_root, remove_root
from streamlog.root.roots import check_root, make_root

__all__ = ["add", "list_", "remove"]


def add(settings: Settings, *, new_root: str) -> None:
    """Add a root to the replica set and print the list; the first root is made if it is missing."""
    home = _home(settings)
    make_root(home)
    added = add_root(home, new_root)
    _print(settings, home)
    if added.shares_disk_with:
        shared = ", ".join(added.shares_disk_with)
        remark(settings, f"{added.root.path} is on the same disk as {shared}: both fail with it")


def remove(settings: Settings, *, name: str) -> None:
    """Remove a root from the replica set."""
    removed = remove_root(_home(settings), name)
    remark(settings, f"removed node {removed.node}; its files stay in {removed.path}")


def list_(settings: Settings) -> None:
    """Print the roots of the replica set."""
    home = _home(settings)
    check_root(home)
    if not _print(settings, home):
        remark(settings, "one log root, no replicas; see: streamlog replicas add --help")


def _home(settings: Settings) -> LogRoot:
    """Return the root given; of several, the first readable root of their set."""
    home = LogRoot.at(settings.root)
    if len(parse_roots(settings.root, home.fs)) == 1:
        return home
    with LogManager.open(settings.root) as manager:
        return manager.log_root


def _print(settings: Settings, home: LogRoot) -> bool:
    """Print the roots; return whether there is a list."""
    roots = RootSet.load(home)
    rows = [] if roots is None else [_row(roots, node) for node in roots.node_ids]
    columns = (
        Column("node", "NODE", Kind.NUMBER),
        Column("root", "ROOT"),
        Column("isOnline", "ONLINE"),
        Column("isMount", "MOUNT"),
        Column("problem", "PROBLEM"),
    )
    Output(settings).rows(rows, columns)
    return roots is not None


def _row(roots: RootSet, node: int) -> dict[str, Any]:
    listed = next(each for each in roots.list.roots if each.node == node)
    problem = roots.problem(node)
    return {
        "node": node,
        "root": listed.path,
        "isOnline": problem is None,
        "isMount": listed.is_mount,
        "problem": None if problem is None else problem.sentence,
    }
