"""What a query does to a root of any kind: its commits, and what becomes of their errors."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Final

from streamlog.errors import CommitMismatchError, StreamLogError
from tests.programs.reliability.history import History, Outcome, Raised, Wrote

APP: Final = "query/t"
IMPOSTOR: Final = "another query/t"  # commits other rows under a version of APP
PARTITIONS: Final = 2


class QueryWriter(ABC):
    """A process whose operations are recorded, among them the commits of one query.

    Attributes:
        history: The events so far; this process appends its own.
    """

    history: History

    def perform(self, operation: str) -> None:
        """Perform an operation; record an error in the history."""
        try:
            self._run(operation)
        except StreamLogError as error:
            self.history.append(Raised(operation, repr(error), is_typed=True))
        except Exception as error:  # noqa: BLE001 - any error that is not ours is a finding
            self.history.append(Raised(operation, repr(error), is_typed=False))

    def commit(self) -> None:
        """Commit the next version of a query to both partitions."""
        last = self._last_version()
        if last is not None and last.outcome is not Outcome.DONE:
            return self._commit(last.number, last.ids)  # Spark retries a batch until it succeeds
        return self._commit(0 if last is None else last.number + 1, None)

    def commit_again(self) -> None:
        """Commit the last version again, as after a crash before Spark's checkpoint."""
        last = self._last_version()
        if last is None:
            return self.commit()
        return self._commit(last.number, last.ids)

    def commit_other(self) -> None:
        """Commit other rows under the last version, as after an older checkpoint was restored."""
        last = self._last_version()
        if last is None or last.outcome is not Outcome.DONE:
            return self.commit()
        ids = {p: (self._draw(2),) for p in range(PARTITIONS)}
        try:
            self._commit(last.number, ids, writer=IMPOSTOR)
        except CommitMismatchError:
            return None
        raise AssertionError("other rows were accepted under a committed version")

    def _last_version(self) -> Wrote | None:
        mine = [each for each in self.history if isinstance(each, Wrote) and each.writer == APP]
        return mine[-1] if mine else None

    @abstractmethod
    def _run(self, operation: str) -> None:
        """Do what an operation of that name does."""

    @abstractmethod
    def _draw(self, count: int) -> tuple[int, ...]:
        """Return ids of new records."""

    @abstractmethod
    def _commit(
        self,
        version: int,
        ids: Mapping[int, tuple[tuple[int, ...], ...]] | None,
        *,
        writer: str = APP,
    ) -> None:
        """Commit records by partition and batch; new ones if they are None."""
