"""What became of a commit."""

from dataclasses import dataclass

from streamlog.commits.identity import CommitIdentity
from streamlog.commits.ledger import CommittedRange
from streamlog.commits.replay import Verdict
from streamlog.commits.retirement import DroppedPart

__all__ = ["CommitOutcome"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOutcome:
    """What became of a commit.

    Attributes:
        identity: Whose commit it is.
        verdict: COMMIT, REPLAY, SKIP or APPEND.
        revision: Which revision of the version stands: 0, above where a mismatch was appended.
        parts: The offsets it took, by partition. Empty for a replay of a commit that is retired
            and was not the last one.
        dropped: What it lost because a topic was deleted after it was decided.
        rows: How many rows stand.
    """

    identity: CommitIdentity
    verdict: Verdict
    revision: int
    parts: tuple[CommittedRange, ...]
    dropped: tuple[DroppedPart, ...] = ()
    rows: int

    @property
    def is_replay(self) -> bool:
        """Whether the commit stood already and nothing was written."""
        return self.verdict in (Verdict.REPLAY, Verdict.SKIP)
