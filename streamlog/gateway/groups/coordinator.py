"""The coordinator of all groups: finds them, keeps them and their offsets in `__consumer_offsets`.

Source: org.apache.kafka.coordinator.group.GroupCoordinatorService, GroupCoordinatorShard.
"""

import asyncio
import logging
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from streamlog.errors import StreamLogError
from streamlog.gateway.broker import Broker
from streamlog.gateway.coordinator_log import (
    CoordinatorLog,
    InternalTopic,
    KeyValue,
    LoadedState,
    TxnProducer,
    coordinator_code,
)
from streamlog.gateway.error_codes import ErrorCode
from streamlog.gateway.groups.classic import ClassicGroup
from streamlog.gateway.groups.consumer import ConsumerGroup, heartbeat_error
from streamlog.gateway.groups.consumer_member import ConsumerHeartbeat, RefusedHeartbeatError
from streamlog.gateway.groups.group import CommittingMember, Group, SubscribedTopic
from streamlog.gateway.groups.members import (
    GroupWorld,
    JoinRequest,
    LeavingMember,
    Reply,
    Resolution,
    SyncRequest,
    join_error,
    sync_error,
)
from streamlog.gateway.groups.migration import check_upgrade, consumer_state
from streamlog.gateway.groups.offsets import CommittedOffset, GroupOffsets, offset_tombstone
from streamlog.gateway.groups.settings import GroupSettings
from streamlog.gateway.groups.timers import LoopTimers
from streamlog.gateway.patterns import InvalidPatternError, matching
from streamlog.protocol.apis import ZERO_UUID
from streamlog.protocol.internal_topics import (
    Decoder,
    InternalRecord,
    OffsetsKey,
    parse_internal,
)
from streamlog.topic import TopicPartition

__all__ = ["GroupCoordinator"]

_logger: Final = logging.getLogger(__name__)

_TOPIC: Final = Decoder.OFFSETS.value
_COMMITS: Final = (0, OffsetsKey.OFFSET_COMMIT)  # 0: as brokers before 0.9.0.1 wrote it
_NO_GROUP_KNOWN: Final = 9  # the first OffsetCommit with an error of its own for missing groups
_MINUTE_MS: Final = 60_000


class GroupCoordinator:
    """Coordinates groups; to be used in the event loop, through `Broker.coordinator`.

    Each method first waits until the log is loaded.

    Attributes:
        groups: The groups by name.
        offsets: Their committed offsets.
        world: What groups need from outside.
        settings: The settings of each group.
        log: The topic that keeps all this.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        config = broker.config.serve
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config.offsets_topic_segment_bytes),
        }
        self.log = CoordinatorLog(
            broker, InternalTopic(_TOPIC, config.offsets_topic_num_partitions, configs)
        )
        self.groups: dict[str, Group] = {}
        self.settings = GroupSettings(broker)
        self.offsets = GroupOffsets()
        self.timers = LoopTimers(asyncio.get_running_loop())
        self.world = GroupWorld(
            broker.clock,
            broker.manager.log_root.random,
            self.timers,
            lambda: broker.config.serve,
            self.persist,
            self._topic_of,
            self._name_of,
            broker.catalog.topics,
            self._resolve,
            self.settings.of,
            self._become,
        )
        self._loading: asyncio.Task[None] | None = None
        self._expiring: asyncio.Task[None] | None = None
        self._resolving: set[asyncio.Task[None]] = set()
        self._is_loaded = False

    def begin_to_stop(self) -> None:
        """Let requests that wait answer now, and end timers."""
        for group in self.groups.values():
            group.stop()
        for task in self._resolving:
            task.cancel()
        self.timers.cancel_all()

    # ---- the log -----------------------------------------------------------------------------
    async def ready(self) -> None:
        """Wait until groups and offsets are loaded.

        Raises:
            StreamLogError: They cannot be loaded; the next call tries again.
        """
        if self._is_loaded:
            return
        if self._loading is None:
            self._loading = asyncio.create_task(self._load())
        try:
            await asyncio.shield(self._loading)
        except StreamLogError:
            self._loading = None
            raise

    async def prepare(self) -> None:
        """Create the topic of groups if it is missing: clients see it once they find this."""
        if not self._broker.settings.is_read_only:
            await self.log.create()

    async def _load(self) -> None:
        state = await self.log.load()
        await self._broker.run(self.settings.load)
        self._restore(state)
        self._is_loaded = True
        self._schedule_expiry()

    def _restore(self, state: LoadedState) -> None:
        """Make groups and offsets of the latest record of each key."""
        consumer_groups: dict[str, list[InternalRecord]] = {}
        for key, value in state.values.items():
            record = parse_internal(Decoder.OFFSETS, key, value)
            if record is None or record.value is None:
                _logger.warning("%s: record of an unknown type or version is ignored", _TOPIC)
            elif record.kind in _COMMITS:
                self.offsets.put(*_commit_key(record), CommittedOffset.of_record(record.value))
            elif record.kind == OffsetsKey.CLASSIC_GROUP:
                group_id = record.key["group"]
                self.groups[group_id] = ClassicGroup.of_record(group_id, record.value, self.world)
            else:
                consumer_groups.setdefault(record.key["groupId"], []).append(record)
        for group_id, records in consumer_groups.items():
            self.groups[group_id] = ConsumerGroup.of_records(group_id, records, self.world)
        for producer_id, transactional in state.pending.items():
            for key, pending in transactional.items():
                record = parse_internal(Decoder.OFFSETS, key, pending)
                if record and record.value and record.kind in _COMMITS:
                    committed = CommittedOffset.of_record(record.value)
                    self.offsets.put_pending(producer_id, *_commit_key(record), committed)
        for group_id in self.offsets.groups():
            self._group_of_offsets(group_id)

    def persist(
        self, group_id: str, records: Sequence[KeyValue], done: Callable[[ErrorCode], None]
    ) -> None:
        """Append records of a group, then call back with NONE or the error to answer."""

        def finish(outcome: "asyncio.Future[None]") -> None:
            error = outcome.exception()
            if error is None:
                done(ErrorCode.NONE)
            elif isinstance(error, StreamLogError):
                _logger.warning("group %s was not stored: %s", group_id, error)
                done(coordinator_code(error))
            else:
                _logger.error("group %s was not stored", group_id, exc_info=error)
                done(ErrorCode.UNKNOWN_SERVER_ERROR)

        self.log.submit(group_id, records).add_done_callback(finish)

    def _topic_of(self, name: str) -> SubscribedTopic | None:
        entry = self._broker.catalog.topic(name)
        if entry is None or entry.topic_id == ZERO_UUID:  # members of groups know topics by ids
            return None
        return SubscribedTopic(entry.topic_id, len(entry.partitions))

    def _name_of(self, topic_id: str) -> str | None:
        entry = self._broker.catalog.topic_of_id(topic_id)
        return None if entry is None else entry.name

    def _resolve(self, patterns: frozenset[str], done: Resolution) -> None:
        """Match patterns with the names of all topics, in a thread."""
        names = list(self._broker.catalog.topics())

        async def resolved() -> None:
            try:
                done(await self._broker.run(_matches, patterns, names))
            except Exception:
                _logger.exception("patterns of a group were not matched")
                done(None)

        task = asyncio.create_task(resolved())
        self._resolving.add(task)
        task.add_done_callback(self._resolving.discard)

    def _become(self, group: Group) -> None:
        self.groups[group.group_id] = group

    def _group_of_offsets(self, group_id: str) -> None:
        """Make the group of offsets that were committed without a group: a simple one."""
        if group_id not in self.groups:
            self.groups[group_id] = ClassicGroup(group_id, self.world)

    def offsets_partition(self, group_id: str) -> TopicPartition:
        """Return the partition that keeps a group: part of a transaction that commits offsets."""
        return TopicPartition(_TOPIC, self.log.partition_of(group_id))

    # ---- members -----------------------------------------------------------------------------
    async def join(self, group_id: str, request: JoinRequest) -> dict[str, Any]:
        """Let a member join; return the response, which may wait for other members.

        Source: GroupMetadataManager.classicGroupJoin.
        """
        await self.ready()
        group = self.groups.get(group_id)
        if group is None or (isinstance(group, ConsumerGroup) and group.is_empty):
            if request.member_id:
                return join_error(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
            group = self._new_group(group_id, group)
        if not isinstance(group, ClassicGroup | ConsumerGroup):
            return join_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        joined = group
        return await _answered(lambda reply: joined.join(request, reply))

    def _new_group(self, group_id: str, replaced: Group | None) -> ClassicGroup:
        group = self.groups[group_id] = ClassicGroup(group_id, self.world)

        def stored(code: ErrorCode) -> None:
            if code is not ErrorCode.NONE and self.groups.get(group_id) is group:
                self._take_back(group, replaced)

        tombstones = [] if replaced is None else replaced.tombstones()
        self.persist(group_id, [*tombstones, group.record({})], stored)
        return group

    def _take_back(self, group: Group, replaced: Group | None) -> None:
        """Drop a group that was not stored; the empty one that it replaced stays."""
        if replaced is None:
            del self.groups[group.group_id]
            if self.offsets.of(group.group_id):
                self._group_of_offsets(group.group_id)
        else:
            self.groups[group.group_id] = replaced
        group.stop()

    async def consumer_heartbeat(self, group_id: str, request: ConsumerHeartbeat) -> dict[str, Any]:
        """Let a member of a consumer group join, go on or leave; return the response.

        Source: GroupMetadataManager.getOrMaybeCreateConsumerGroup.
        """
        await self.ready()
        if not request.member_id:
            random_id = uuid.UUID(int=self.world.random.getrandbits(128), version=4)
            request = request._replace(member_id=str(random_id))
        try:
            asked = self._consumer_group(group_id, is_joining=request.member_epoch == 0)
        except RefusedHeartbeatError as refused:
            return heartbeat_error(refused.code, refused.message)
        response = await _answered(lambda reply: asked.heartbeat(request, reply))
        if not asked.is_stored and self.groups.get(group_id) is asked:
            self._take_back(asked, asked.replaces)
        return response

    def _consumer_group(self, group_id: str, *, is_joining: bool) -> ConsumerGroup:
        """Return a consumer group; make one of none or of a classic one if a member joins."""
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        if not is_joining or not isinstance(group, ClassicGroup | None):
            what = "not found" if group is None else "not a consumer group"
            raise RefusedHeartbeatError(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is {what}."
            )
        state = None
        if group is not None and not group.is_empty:
            settings = self._broker.config.serve
            check_upgrade(
                group, settings.group_consumer_migration_policy, settings.group_consumer_max_size
            )
            state = consumer_state(group, self._topic_of)
            group.give_way()
        made = ConsumerGroup(group_id, self.world, group, state)
        made.expect_members()
        self.groups[group_id] = made
        return made

    async def sync(self, group_id: str, request: SyncRequest) -> dict[str, Any]:
        """Return a member's assignment, once its leader has sent it."""
        await self.ready()
        group = self.groups.get(group_id)
        if not isinstance(group, ClassicGroup | ConsumerGroup) or group.is_empty:
            return sync_error(ErrorCode.UNKNOWN_MEMBER_ID)
        synced = group
        return await _answered(lambda reply: synced.sync(request, reply))

    async def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        """Note a member's sign of life; return what it has to know."""
        await self.ready()
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group.classic_heartbeat(member_id, instance_id, generation)
        if not isinstance(group, ClassicGroup):
            return ErrorCode.UNKNOWN_MEMBER_ID
        return group.heartbeat(member_id, instance_id, generation)

    async def leave(self, group_id: str, leaving: Sequence[LeavingMember]) -> list[ErrorCode]:
        """Remove members of a group; return the outcome of each."""
        await self.ready()
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            left = group
            response = await _answered(lambda reply: left.leave(leaving, reply))
            return [ErrorCode(each) for each in response["codes"]]
        if not isinstance(group, ClassicGroup):
            return [ErrorCode.UNKNOWN_MEMBER_ID] * len(leaving)
        return group.leave(leaving)

    # ---- offsets -----------------------------------------------------------------------------
    async def commit_offsets(
        self,
        group_id: str,
        identity: CommittingMember,
        offsets: Mapping[TopicPartition, CommittedOffset],
    ) -> ErrorCode:
        """Commit offsets of a group; return NONE once they are in the log.

        Source: OffsetMetadataManager.commitOffset.
        """
        await self.ready()
        code = self._check_commit(group_id, identity)
        if code is not ErrorCode.NONE:
            return code
        group = self.groups.get(group_id)
        if group is not None:
            group.committed(identity.member_id)

        def apply() -> None:
            self._group_of_offsets(group_id)
            for partition, committed in offsets.items():
                self.offsets.put(group_id, partition, committed)

        return await self._append(group_id, _commit_records(group_id, offsets), apply)

    async def txn_commit_offsets(
        self,
        group_id: str,
        identity: CommittingMember,
        offsets: Mapping[TopicPartition, CommittedOffset],
        producer: TxnProducer,
    ) -> ErrorCode:
        """Commit offsets as part of a transaction; they count from its commit marker on.

        The caller has added `offsets_partition` to the transaction, and checked the producer.

        Source: OffsetMetadataManager.commitTransactionalOffset.
        """
        await self.ready()
        code = self._check_commit(group_id, identity)
        if code is not ErrorCode.NONE:
            return code

        def apply() -> None:
            self._group_of_offsets(group_id)
            for partition, committed in offsets.items():
                self.offsets.put_pending(producer.producer_id, group_id, partition, committed)

        records = _commit_records(group_id, offsets)
        return await self._append(group_id, records, apply, producer)

    async def on_transaction_end(self, producer_id: int, *, is_commit: bool) -> None:
        """Note that the end marker of a producer's transaction is in the log of its groups."""
        await self.ready()
        self.offsets.end_transaction(producer_id, is_commit=is_commit)

    def _check_commit(self, group_id: str, identity: CommittingMember) -> ErrorCode:
        group = self.groups.get(group_id)
        if group is not None:
            return group.check_commit(identity)
        if identity.generation < 0:
            return ErrorCode.NONE  # from outside any group: a simple one is made for it
        if identity.is_transactional or identity.version < _NO_GROUP_KNOWN:
            return ErrorCode.ILLEGAL_GENERATION
        return ErrorCode.GROUP_ID_NOT_FOUND

    async def delete_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> tuple[ErrorCode, dict[TopicPartition, ErrorCode]]:
        """Remove committed offsets; return the outcome for the group, and for each partition.

        Source: OffsetMetadataManager.deleteOffsets.
        """
        await self.ready()
        group = self.groups.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND, {}
        code = group.check_offset_deletion()
        if code is not ErrorCode.NONE:
            return code, {}
        codes = {
            each: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            if group.is_subscribed(each.topic)
            else ErrorCode.NONE
            for each in partitions
        }
        known = {*self.offsets.of(group_id), *self.offsets.pending_partitions(group_id)}
        removed = [each for each in codes if codes[each] is ErrorCode.NONE and each in known]
        return await self._remove_offsets(group_id, removed), codes

    async def _remove_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition]
    ) -> ErrorCode:
        def apply() -> None:
            for partition in partitions:
                self.offsets.remove(group_id, partition)

        records = [offset_tombstone(group_id, each) for each in partitions]
        return await self._append(group_id, records, apply)

    async def on_topics_deleted(self, topics: Iterable[str]) -> None:
        """Remove the offsets of topics that were deleted; a failure is only logged."""
        try:
            await self.ready()
        except StreamLogError as error:
            _logger.warning("offsets of deleted topics were not removed: %s", error)
            return
        deleted = set(topics)
        for group_id in list(self.groups):
            known = {*self.offsets.of(group_id), *self.offsets.pending_partitions(group_id)}
            removed = [each for each in known if each.topic in deleted]
            if removed:
                await self._remove_offsets(group_id, removed)

    async def _append(
        self,
        group_id: str,
        records: Sequence[KeyValue],
        apply: Callable[[], None],
        producer: TxnProducer | None = None,
    ) -> ErrorCode:
        if not records:
            return ErrorCode.NONE
        try:
            if producer is None:
                await self.log.append(group_id, records, apply=apply)
            else:
                await self.log.append(group_id, records, apply=apply, producer=producer)
        except StreamLogError as error:
            _logger.warning("group %s: offsets were not stored: %s", group_id, error)
            return coordinator_code(error)
        return ErrorCode.NONE

    # ---- removing groups ---------------------------------------------------------------------
    async def delete_group(self, group_id: str) -> ErrorCode:
        """Remove a group without members and its offsets.

        Source: GroupCoordinatorShard.deleteGroups.
        """
        await self.ready()
        group = self.groups.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if not group.is_empty:
            return ErrorCode.NON_EMPTY_GROUP
        partitions = {*self.offsets.of(group_id), *self.offsets.pending_partitions(group_id)}
        return await self._remove_group(group, partitions)

    async def _remove_group(self, group: Group, partitions: Iterable[TopicPartition]) -> ErrorCode:
        group_id, removed = group.group_id, list(partitions)

        def apply() -> None:
            for partition in removed:
                self.offsets.remove(group_id, partition)
            # If members have joined meanwhile, their group is stored again after these records.
            if group.is_empty and self.groups.get(group_id) is group:
                del self.groups[group_id]
                group.stop()

        records = [offset_tombstone(group_id, each) for each in removed]
        return await self._append(group_id, [*records, *group.tombstones()], apply)

    def _schedule_expiry(self) -> None:
        interval_ms = self._broker.config.serve.offsets_retention_check_interval_ms
        self.timers.schedule("expiry", interval_ms, self._begin_expiry)

    def _begin_expiry(self) -> None:
        self._expiring = asyncio.create_task(self.expire_offsets())
        self._schedule_expiry()

    async def expire_offsets(self) -> None:
        """Remove the offsets whose retention is over, and groups that have nothing left.

        Source: GroupCoordinatorShard.cleanupGroupMetadata.
        """
        await self.ready()
        for group in list(self.groups.values()):
            known = self.offsets.of(group.group_id)
            expired = [each for each in known if self._is_expired(group, each, known[each])]
            is_over = len(expired) == len(known) and group.is_empty
            if is_over and not self.offsets.pending_partitions(group.group_id):
                await self._remove_group(group, expired)
            elif expired:
                await self._remove_offsets(group.group_id, expired)

    def _is_expired(
        self, group: Group, partition: TopicPartition, committed: CommittedOffset
    ) -> bool:
        since_ms = group.offsets_age_from(committed.commit_timestamp_ms)
        if since_ms is None or group.is_subscribed(partition.topic):
            return False
        if self.offsets.is_pending(group.group_id, partition):
            return False
        now_ms = self._broker.clock.now_ms()
        if committed.expire_timestamp_ms != -1:
            return now_ms >= committed.expire_timestamp_ms
        return now_ms - since_ms >= self._broker.config.offsets_retention_minutes * _MINUTE_MS


async def _answered(ask: Callable[[Reply], None]) -> dict[str, Any]:
    """Return the response of a request that may be answered later."""
    answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    def reply(response: dict[str, Any]) -> None:
        if not answer.done():  # else its client is gone, and so is its handler
            answer.set_result(response)

    ask(reply)
    return await answer


def _matches(patterns: frozenset[str], names: list[str]) -> dict[str, frozenset[str]]:
    """Return the names that each pattern matches; one that is invalid here matches nothing."""
    found = {}
    for pattern in patterns:
        try:
            found[pattern] = matching(pattern, names)
        except InvalidPatternError as error:
            _logger.warning("pattern %r matches nothing: %s", pattern, error)
            found[pattern] = frozenset()
    return found


def _commit_key(record: InternalRecord) -> tuple[str, TopicPartition]:
    key = record.key
    return key["group"], TopicPartition(key["topic"], key["partition"])


def _commit_records(
    group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]
) -> list[KeyValue]:
    return [committed.record(group_id, partition) for partition, committed in offsets.items()]
