"""Elections over directories: which replica leads, decided in the register.

No scheduler watches the leader. A writer that finds the leader's root offline, or its log
incomplete, holds an election by itself. `election.elect` is the table; this module gathers its
facts: which roots can be reached, and which replicas still hold what they held (`completeness`).
"""

import logging
from collections.abc import Callable, Collection, Mapping
from functools import partial
from random import Random
from typing import Final

from streamlog.config.log_config import LogConfig
from streamlog.errors import InvalidUpdateVersionError, NoReplicaOnlineError, StreamLogError
from streamlog.replication.completeness import ReplicaPositions, positions_of, proof_of_loss
from streamlog.replication.election import Election, ElectionType, elect
from streamlog.replication.partition_state import NO_LEADER, PartitionState
from streamlog.replication.register import QuorumRegister
from streamlog.replication.roots import ReplicaRoots
from streamlog.topic import TopicPartition

__all__ = ["Leadership"]

_ATTEMPTS: Final = 8  # at elections that other processes hold at the same time

_logger = logging.getLogger(__name__)


class Leadership:
    """The leader of one partition, as the register knows it.

    Args:
        partition: The partition.
        topic_id: The id of its topic.
        roots: Where the replicas and the registers are.
        random: For the register's rounds.

    Attributes:
        register: The state of the partition in all roots.
    """

    def __init__(
        self,
        partition: TopicPartition,
        *,
        topic_id: str | None,
        roots: ReplicaRoots,
        random: Random,
    ) -> None:
        self._partition, self._roots = partition, roots
        self.register = QuorumRegister(
            roots.register_files(partition),
            locker=lambda node: roots.locked(node, partition),
            random=random,
            topic_id=topic_id,
        )

    def leader(self, config: Callable[[], LogConfig]) -> PartitionState:
        """Return the state of the partition, after an election if the leader's root is offline.

        Args:
            config: Returns the topic's settings.

        Raises:
            NoReplicaOnlineError: No replica that holds every committed record is online.
            NoQuorumError: Too few roots can be reached.
        """
        state = self.register.read()
        if state.has_leader and self._roots.is_online(state.leader):
            return state
        return self.elect(ElectionType.ONLINE, config)

    def elect(
        self,
        kind: ElectionType,
        config: Callable[[], LogConfig],
        *,
        failed: Collection[int] = (),
    ) -> PartitionState:
        """Hold an election; the state stays as it is if the leader may go on leading.

        Args:
            kind: How far it may go; `ONLINE` and `PREFERRED` go as far as `UNCLEAN` if the
                topic sets `unclean.leader.election.enable`.
            config: Returns the topic's settings.
            failed: Nodes that count as offline: their disks refused an append.

        Raises:
            NoReplicaOnlineError: No replica may lead.
            NoQuorumError: Too few roots can be reached.
        """
        for _ in range(_ATTEMPTS):
            state = self.register.read()
            outcome = self._outcome(state, kind, config(), failed)
            if outcome.state == state:
                return state
            try:
                decided = self.register.change(partial(_elected, outcome), state.partition_epoch)
            except InvalidUpdateVersionError:
                continue  # another process was faster
            self._log_election(outcome, state)
            return decided
        return self.register.read()

    def force(self, config: Callable[[], LogConfig]) -> PartitionState:
        """Hold an unclean election without a majority of the registers.

        The roots that can be reached decide from now on; see `QuorumRegister.force`.

        Raises:
            NoReplicaOnlineError: No replica is online.
        """
        before: list[PartitionState] = []

        def elected(state: PartitionState) -> PartitionState:
            before.append(state)
            outcome = self._outcome(state, ElectionType.UNCLEAN, config())
            return outcome.state if outcome.state != state else state.with_leader(state.leader)

        return self.register.force(elected)

    def _outcome(
        self,
        state: PartitionState,
        kind: ElectionType,
        config: LogConfig,
        failed: Collection[int] = (),
    ) -> Election:
        online, offline = self._positions(state, failed)
        kinds = [kind]
        if kind is not ElectionType.UNCLEAN and config.unclean_leader_election_enable:
            kinds.append(ElectionType.UNCLEAN)
        for each in kinds:
            outcome = elect(
                state,
                each,
                online=online.keys(),
                min_insync_replicas=config.min_insync_replicas,
                complete=lambda node: self._is_complete(online, node, state),
            )
            if outcome.leader != NO_LEADER:
                return outcome
        if not online:
            raise self._none_online(offline)
        raise NoReplicaOnlineError(
            f"no replica of {self._partition} that holds every committed record is online",
            got=f"nodes {sorted(online)} online",
            expected=f"one of the ISR {list(state.isr)}, of ELR {list(state.elr)}",
            hint="bring one of these log roots back, or accept to lose records: streamlog elect "
            f"--unclean {self._partition.topic}:{self._partition.partition}",
        )

    def _none_online(self, offline: Mapping[int, str]) -> NoReplicaOnlineError:
        """Return the error for a partition of which not even an unclean election finds a replica.

        Args:
            offline: Why each replica is offline, by node.
        """
        files = self._roots.register_files(self._partition)
        paths = {node: files[node].root.path if node in files else "not listed" for node in offline}
        return NoReplicaOnlineError(
            f"no replica of {self._partition} is online",
            got="; ".join(f"node {node} ({paths[node]}): {why}" for node, why in offline.items()),
            expected="one of these log roots",
            hint="bring one of these log roots back: mount or repair its disk; if all of them are "
            f"lost for good, delete the topic: streamlog topics delete {self._partition.topic}",
        )

    def _positions(
        self, state: PartitionState, failed: Collection[int]
    ) -> tuple[dict[int, ReplicaPositions], dict[int, str]]:
        """Return the positions of the replicas that can be reached, and why others cannot."""
        online, offline = {}, {}
        for node in state.replicas:
            if node in failed:
                offline[node] = "its disk refused an append"
                continue
            try:
                with self._roots.open_follower(node, self._partition) as log:
                    online[node] = positions_of(node, log)
            except StreamLogError as error:
                offline[node] = error.what
                _logger.info("[%s] node %d is offline: %s", self._partition, node, error)
        return online, offline

    def _is_complete(
        self, online: Mapping[int, ReplicaPositions], node: int, state: PartitionState
    ) -> bool:
        proof = proof_of_loss(online[node], online.values(), state)
        if proof is not None:
            _logger.warning(
                "[%s] node %d lost records (%s), as node %d knows (%s)",
                self._partition,
                node,
                online[node],
                proof.node,
                proof,
            )
        return proof is None

    def _log_election(self, outcome: Election, before: PartitionState) -> None:
        assert outcome.reason is not None, "a changed state has a leader"
        _logger.log(
            logging.INFO if outcome.reason.is_clean else logging.WARNING,
            "[%s] node %d leads in epoch %d: %s; before: node %d in epoch %d, ISR %s",
            self._partition,
            outcome.leader,
            outcome.state.leader_epoch,
            outcome.reason.value,
            before.leader,
            before.leader_epoch,
            list(before.isr),
        )


def _elected(outcome: Election, _: PartitionState) -> PartitionState:
    return outcome.state
