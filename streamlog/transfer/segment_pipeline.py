"""Segments on their way into an object store, while the next one is written.

What is left of a segment when it gets no more batches (its indexes, the last parts of its log, and
reading everything back) needs nothing but the store, so threads do it. How much may be under way is
bounded in bytes: adding more waits for the oldest.
"""

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Final

from streamlog.bucket.actions import BucketSegment
from streamlog.bucket.segments import SealedSegment
from streamlog.store.remote import PART_SIZE, PARTS_AT_ONCE

__all__ = ["IN_FLIGHT_BYTES", "UPLOAD_BYTES", "SegmentPipeline"]

UPLOAD_BYTES: Final = (PARTS_AT_ONCE + 2) * PART_SIZE  # that an upload keeps in memory, at most
IN_FLIGHT_BYTES: Final = 64 << 20  # in memory, of segments that are being finished
_THREADS: Final = 4


class SegmentPipeline:
    """Finishes segments in threads, and compares what the store has of each."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._running: deque[tuple[Future[BucketSegment], SealedSegment]] = deque()

    def add(self, segment: SealedSegment) -> "Future[BucketSegment]":
        """Finish a segment; wait before that while too many bytes are under way.

        Returns:
            What is known of the segment when it has been read back.

        Raises:
            StreamLogError: An earlier one failed.
        """
        while self._running and (
            self._running[0][0].done() or self._load() + _load_of(segment) > IN_FLIGHT_BYTES
        ):
            self._running[0][0].result()
            self._running.popleft()
        self._pool = self._pool or ThreadPoolExecutor(_THREADS, "streamlog-pipeline")
        done = self._pool.submit(segment.complete, is_compared=True)
        self._running.append((done, segment))
        return done

    def _load(self) -> int:
        return sum(_load_of(segment) for done, segment in self._running if not done.done())

    def stop(self) -> None:
        """Give up what is under way; no request is made afterwards."""
        for done, segment in self._running:
            segment.abandon()
            done.cancel()
        wait([done for done, _ in self._running])
        self._running.clear()

    def close(self) -> None:
        """End the threads."""
        self.stop()
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()


def _load_of(segment: SealedSegment) -> int:
    """Return how many bytes finishing a segment keeps in memory: to be sent, then read back."""
    return min(segment.built.size, UPLOAD_BYTES)
