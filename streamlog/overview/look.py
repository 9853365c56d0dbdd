"""`overview_of`: the overview of a path, whatever lies there."""

from typing import Final

from streamlog.arrow.views import open_read_roots
from streamlog.bucket.places import root_paths
from streamlog.clock import Clock
from streamlog.fs.local import LocalFileSystem
from streamlog.overview.directory_root import overview_of_directory
from streamlog.overview.model import RateWindow, RootOverview
from streamlog.root.read_roots import ReadRoots, RootPaths

__all__ = ["HOUR_MS", "overview_of"]

HOUR_MS: Final = 3_600_000


def overview_of(
    path: RootPaths,
    *,
    clock: Clock | None = None,
    step_ms: int = HOUR_MS,
    steps: int = 48,
    ends_now: bool = False,
    is_verified: bool = False,
) -> RootOverview:
    """Return what is at a path, from metadata; nothing there is changed, created or locked.

    Args:
        path: A log root, a broker's log.dir, a partition's directory, a segment file, the roots of
            a replica set, or the URL of a root in an object store.
        clock: The clock; the machine's own by default.
        step_ms: The length of the steps that records are counted in.
        steps: Their number.
        ends_now: Whether they end now; otherwise they end at the newest record, unless it is
            younger than half of them.
        is_verified: Whether to check every byte of the logs as well.

    Raises:
        UnknownTopicError: There is no log at the path.
        InvalidRequestError: It is something else.
        InvalidConfigError: The root's own settings are invalid.
        StorageError: The disk or the store cannot be read.
    """
    roots = open_read_roots(root_paths(path, LocalFileSystem()), clock=clock)

    def choose_window(newest_ms: int | None) -> RateWindow:
        now_ms = roots.clock.now_ms()
        is_old = newest_ms is not None and newest_ms < now_ms - steps * step_ms // 2
        end_ms = newest_ms if newest_ms is not None and is_old and not ends_now else now_ms
        return RateWindow.ending(end_ms, step_ms=step_ms, count=steps)

    if isinstance(roots, ReadRoots):
        return overview_of_directory(roots, choose_window, is_verified=is_verified)
    from streamlog.overview.bucket_root import overview_of_bucket  # obstore is optional

    return overview_of_bucket(roots, choose_window, is_verified=is_verified)
