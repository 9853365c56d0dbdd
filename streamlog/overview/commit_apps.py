"""Who writes exactly-once commits into a root, and how far they are."""

from collections.abc import Mapping

from streamlog.binary.sealed import MAX_SEALED_SIZE, unseal
from streamlog.commits.decisions import Decision
from streamlog.commits.history import Ledger, Ledgers
from streamlog.commits.pending import PendingDecisions
from streamlog.errors import CorruptDataError, FileMissingError, StreamLogError
from streamlog.fs.files import read_file
from streamlog.fs.log_root import LogRoot
from streamlog.overview.model import AppOverview

__all__ = ["apps_in_bucket", "committing_apps"]


def committing_apps(root: LogRoot) -> tuple[AppOverview, ...]:
    """Return the apps of a root by name; files that cannot be read are left to `verify`."""
    ledgers, retired_ms = _ledgers(root)
    pending: dict[str, list[Decision]] = {}
    decisions = PendingDecisions(root)
    for name in decisions.names():
        try:
            decision = decisions.load(name)
        except StreamLogError:
            continue
        if decision is not None:
            pending.setdefault(decision.identity.app, []).append(decision)
    return tuple(
        _app(app, ledgers.get(app), pending.get(app, []), retired_ms.get(app))
        for app in sorted({*ledgers, *pending})
    )


def _app(
    app: str, ledger: Ledger | None, pending: list[Decision], retired_ms: int | None
) -> AppOverview:
    newest = max(pending, key=lambda each: each.number, default=None)
    if newest is not None:
        return AppOverview(
            app=app,
            commits=newest.number,
            last_version=newest.identity.version,
            last_ms=newest.decided_ms,
            pending=len(pending),
        )
    entries = () if ledger is None else ledger.entries
    return AppOverview(
        app=app,
        commits=0 if ledger is None else ledger.standing.number,
        last_version=entries[-1].version if entries else None,
        last_ms=retired_ms,
        pending=0,
    )


def _ledgers(root: LogRoot) -> tuple[dict[str, Ledger], dict[str, int]]:
    """Return the ledgers of all apps, and when each was written."""
    known = Ledgers(root)
    found: dict[str, Ledger] = {}
    written_ms: dict[str, int] = {}
    try:
        names = root.fs.list(root.ledgers)
    except FileMissingError:
        return found, written_ms
    for name in names:
        path = root.ledger(name)
        try:
            content = read_file(root.fs, path, max_size=MAX_SEALED_SIZE)
            app = unseal("ledger", content, path).text("app")
            ledger = known.load(app)
        except (CorruptDataError, FileMissingError):
            continue
        stat = root.fs.stat(path)
        if ledger is not None and stat is not None:
            found[app], written_ms[app] = ledger, stat.mtime_ms
    return found, written_ms


def apps_in_bucket(apps: Mapping[str, Ledger]) -> tuple[AppOverview, ...]:
    """Return the apps of a root in an object store; there, deciding a commit retires it."""
    return tuple(_app(app, ledger, [], None) for app, ledger in sorted(apps.items()))
