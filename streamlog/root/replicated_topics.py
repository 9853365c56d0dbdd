"""Create, alter and delete replicated topics in all log roots of a replica set; restore roots.

The lists of topics of all roots that are online, a majority, are locked in the order of nodes. A
creation takes these steps, and one that dies leaves what the next creation replaces:

    registers in all roots           the partitions are decided; nobody serves them yet
    directories in the replicas      with the same topic id
    NAME.properties in all roots     the topic exists once one root has it

A deletion decides in each register that the partition is gone, then deletes as in one root.
Settings are written to all roots; the version that a majority holds wins.

A root that was offline takes part again after `restore`: it gets the topics, registers and
settings that it missed. A directory with a topic id that the registers do not know is set aside as
NAME-0.ID-stray and logged, never served.
"""

import contextlib
import logging
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from streamlog.config.log_config import ConfigValue
from streamlog.config.settings import text_of
from streamlog.errors import (
    CorruptDataError,
    FencedError,
    FileMissingError,
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidUpdateVersionError,
    NoQuorumError,
    StorageError,
    TopicExistsError,
    UnavailableError,
    UnknownTopicError,
    command_at,
)
from streamlog.fs.api import FileKind
from streamlog.fs.files import stat_directory
from streamlog.fs.log_root import LogRoot
from streamlog.fs.names import is_temporary
from streamlog.partition import checkpoints
from streamlog.partition.locks import Patience
from streamlog.partition.meta_properties import MetaProperties
from streamlog.partition.partition_metadata import new_topic_id, read_topic_id
from streamlog.partition.topic_config import (
    ConfigFiles,
    read_server_config,
    read_topic_properties,
)
from streamlog.replication.election import unclean_shutdown
from streamlog.replication.partition_state import PartitionState
from streamlog.replication.quorum import Voter, latest
from streamlog.replication.register_file import RegisterFile
from streamlog.replication.root_set import COMMITS, RootSet, read_root_list
from streamlog.root.registry import (
    STRAY_SUFFIX,
    changed_configs,
    check_partition_count,
    finish_deletion,
    make_partition,
    numbers_to_make,
    refuse_taken_name,
    remove_half_made,
    set_aside,
)
from streamlog.root.roots import (
    is_our_root,
    make_root,
    refuse_live_broker,
    refuse_planted,
    registry_locked,
    write_topic_properties,
)
from streamlog.root.topics import (
    list_topics,
    partition_directories,
    topic_exists,
    unknown_topic_error,
)
from streamlog.topic import TopicPartition, check_new_topic_name, parse_partition_directory

__all__ = [
    "alter_replicated",
    "create_if_replicated",
    "create_replicated",
    "delete_replicated",
    "forget_replicas",
    "is_replicated",
    "lists_locked",
    "partition_numbers",
    "restore",
    "restore_if_due",
    "set_with_replicas",
]

MAX_REPLICATION_FACTOR: Final = 32_767  # int16 in Kafka's protocol

_logger = logging.getLogger(__name__)


def partition_numbers(root: LogRoot, topic: str) -> list[int]:
    """Return the numbers of a topic's partitions, ascending, wherever their replicas are."""
    if not is_replicated(root, topic):
        return list(partition_directories(root, topic))
    named = map(parse_partition_directory, root.fs.list(root.replication))
    return sorted(each.partition for each in named if each is not None and each.topic == topic)


def is_replicated(root: LogRoot, topic: str) -> bool:
    """Return whether a topic of a root has replicas: its first partition has a register."""
    return root.fs.stat(root.partition_register(TopicPartition(topic, 0))) is not None


@contextlib.contextmanager
def lists_locked(roots: RootSet, *, what: str) -> Iterator[dict[int, LogRoot]]:
    """Hold the lists of topics of all roots that are online; yields these by node.

    Lock order: the lists by node, then locks of partitions.

    Args:
        roots: The replica set.
        what: The purpose, for the error: `create topic orders`.

    Raises:
        NoQuorumError: Less than a majority of the roots is online.
        InvalidUpdateVersionError: The list of roots has changed; load it again.
        LockTimeoutError: Another process held a list.
    """
    online = roots.online()
    roots.check_majority(online, what=what)
    with contextlib.ExitStack() as stack:
        for node in sorted(online):
            refuse_live_broker(online[node])
            refuse_planted(online[node])
            stack.enter_context(registry_locked(online[node]))
        now = RootSet.load(roots.home)
        if now is None or now.list != roots.list:
            raise InvalidUpdateVersionError(
                "the list of log roots has changed",
                path=roots.home.replica_roots,
                got="no list" if now is None else f"version {now.list.version}",
                expected=roots.list.version,
                hint="repeat the command",
            )
        yield online


# ---- creation ---------------------------------------------------------------------------------
def create_replicated(
    roots: RootSet,
    topic: str,
    *,
    partitions: int,
    replication_factor: int,
    configs: Mapping[str, ConfigValue],
    assignment: Sequence[Sequence[int]] | None = None,
) -> str:
    """Create a topic with empty partitions in all replicas, durably; return its id.

    Args:
        roots: The replica set.
        topic: The name of the new topic.
        partitions: Its number of partitions.
        replication_factor: Its number of replicas; the first roots of the list that are online.
        configs: Its own settings, by Kafka's topic keys.
        assignment: The nodes of each partition, the preferred leader first; replaces the two
            numbers.

    Raises:
        InvalidTopicError: The name is invalid, or collides with that of another topic.
        InvalidPartitionsError: The number of partitions is out of range.
        InvalidReplicationFactorError: Fewer roots are online.
        InvalidReplicaAssignmentError: A node is unknown, offline or repeated.
        InvalidConfigError: Unknown key or invalid value.
        TopicExistsError: The topic exists.
        InvalidRequestError: Directories of its name hold files.
        UnavailableError: Less than a majority of the roots is online, a lock was held, or a disk
            failed; the next call continues.
    """
    check_new_topic_name(topic)
    check_partition_count(topic, partitions if assignment is None else len(assignment))
    read_server_config(roots.home).log_config(configs)
    with lists_locked(roots, what=f"create topic {topic}") as online:
        _refuse_existing(roots, online, topic)
        if assignment is None:
            chosen = _first_nodes(roots, online, replication_factor)
            assignment = [chosen] * partitions
        else:
            _check_assignment(roots, online, assignment)
        for root in online.values():
            finish_deletion(root, topic)
            remove_half_made(root, topic)
        _create_commits(roots, online)
        topic_id = new_topic_id(roots.home.random)
        for number, nodes in enumerate(assignment):
            state = PartitionState.created(topic_id, tuple(nodes))
            roots.register(TopicPartition(topic, number)).create(state)
        _make_directories(online, topic, topic_id, dict(enumerate(assignment)))
        own = {key: text_of(value) for key, value in configs.items()}
        for root in online.values():
            write_topic_properties(root, topic, own)
    _logger.info("created topic %s (%s) on nodes %s", topic, topic_id, assignment)
    return topic_id


def create_if_replicated(root: LogRoot, partition: TopicPartition) -> bool:
    """Create the topic of a missing partition if the root's default is more than one replica.

    Under the conditions of `registry.ensure_partition`, which creates it otherwise.

    Returns:
        Whether the topic exists now, with replicas.

    Raises:
        UnknownTopicError: The topic may not be created.
        InvalidReplicationFactorError: There are fewer log roots than replicas.
        UnavailableError: A lock was held, or too few roots are online.
    """
    topic = partition.topic
    if root.fs.stat(root.partition(partition)) is not None or not is_our_root(root):
        return False
    factor = read_server_config(root).default_replication_factor
    if factor == 1 or topic_exists(root, topic):
        return False
    numbers = numbers_to_make(root, partition)
    roots = set_with_replicas(root, factor)
    with contextlib.suppress(TopicExistsError):  # another process was faster
        create_replicated(
            roots, topic, partitions=len(numbers), replication_factor=factor, configs={}
        )
    return True


def set_with_replicas(root: LogRoot, factor: int, *, patience: Patience | None = None) -> RootSet:
    """Return the replica set of a root, to create a topic with several replicas.

    Raises:
        InvalidReplicationFactorError: The root belongs to no set.
    """
    roots = RootSet.load(root, patience=patience)
    if roots is None:
        raise InvalidReplicationFactorError(
            "there is one log root: replicas need a root each",
            path=root.path,
            got=factor,
            expected=1,
            hint=f"add a log root: {command_at(root.path, 'replicas add ROOT')}",
        )
    return roots


def _create_commits(roots: RootSet, online: Mapping[int, LogRoot]) -> None:
    """Create the register of the roots that keep commits, with the first replicated topic."""
    if roots.register(COMMITS).peek() is None:
        nodes = tuple(node for node in roots.node_ids if node in online)
        state = PartitionState.created(new_topic_id(roots.home.random), nodes)
        roots.register(COMMITS).create(state)


def _refuse_existing(roots: RootSet, online: Mapping[int, LogRoot], topic: str) -> None:
    for root in online.values():
        try:
            refuse_taken_name(root.path, topic, list_topics(root))
        except TopicExistsError:
            _restore_topic(roots, online, topic)  # its creator may have died
            raise


def _first_nodes(
    roots: RootSet, online: Mapping[int, LogRoot], replication_factor: int
) -> tuple[int, ...]:
    nodes = tuple(node for node in roots.node_ids if node in online)
    if not 1 <= replication_factor <= len(nodes):
        offline = [node for node in roots.node_ids if node not in online]
        raise InvalidReplicationFactorError(
            "replication factor exceeds the number of log roots that are online"
            if replication_factor >= 1
            else "replication factor must be positive",
            path=roots.home.path,
            got=replication_factor,
            expected=f"1 to {len(nodes)}"
            + (f" (offline: node {', '.join(map(str, offline))})" if offline else ""),
            hint=f"add a log root: {command_at(roots.home.path, 'replicas add ROOT')}",
        )
    return nodes[:replication_factor]


def _check_assignment(
    roots: RootSet, online: Mapping[int, LogRoot], assignment: Sequence[Sequence[int]]
) -> None:
    for number, nodes in enumerate(assignment):
        problem = None
        if not nodes or len(nodes) != len(assignment[0]):
            problem = f"all partitions need the same number of replicas, {len(assignment[0])}"
        elif len(set(nodes)) != len(nodes):
            problem = "nodes that differ"
        elif not set(nodes) <= set(online):
            problem = f"nodes that are online: {', '.join(map(str, online))}"
        if problem is not None:
            raise InvalidReplicaAssignmentError(
                f"invalid replicas of partition {number}",
                path=roots.home.path,
                got=":".join(map(str, nodes)) or "none",
                expected=problem,
                hint=f"list the nodes: {command_at(roots.home.path, 'replicas list')}",
            )


def _make_directories(
    online: Mapping[int, LogRoot], topic: str, topic_id: str, nodes: Mapping[int, Collection[int]]
) -> None:
    for node, root in online.items():
        for number, replicas in nodes.items():
            if node in replicas:
                make_partition(root, TopicPartition(topic, number), topic_id)
        root.fs.sync_directory(root.path)


def forget_replicas(root: LogRoot, topic: str) -> None:
    """Drop what a replicated topic of this name, deleted or never finished, left in the registers.

    The caller is about to create a topic without replicas.

    Raises:
        UnavailableError: A lock was held, or a disk failed.
    """
    if not (is_replicated(root, topic) and (roots := RootSet.load(root)) is not None):
        return
    with lists_locked(roots, what=f"create topic {topic}") as online:
        if any(topic_exists(each, topic) for each in online.values()):
            return  # the creation reports it
        for partition in _registered(roots):
            if partition.topic == topic:
                register = roots.register(partition)
                if register.peek() is not None:
                    register.delete()
                if register.forget():
                    continue
                with roots.locked(roots.home_node, partition):
                    RegisterFile(root, str(partition)).remove()


# ---- alteration -------------------------------------------------------------------------------
def alter_replicated(
    roots: RootSet,
    topic: str,
    *,
    configs: Mapping[str, ConfigValue],
    delete_configs: Collection[str],
    partitions: int | None,
) -> None:
    """Change the settings of a replicated topic and add partitions; see `registry.alter_topic`.

    New partitions have the replicas of partition 0.

    Raises:
        NoQuorumError: Less than a majority of the roots is online. Settings may be written to some.
    """
    with lists_locked(roots, what=f"alter topic {topic}") as online:
        _check_exists(roots, online, topic)
        _restore_topic(roots, online, topic)
        own = read_topic_properties(roots.home, topic)
        changed = changed_configs(own, configs, delete_configs)
        read_server_config(roots.home).log_config(changed)
        if partitions is not None:
            _add_partitions(roots, online, topic, partitions)
        if changed != own:
            for root in online.values():
                write_topic_properties(root, topic, changed)
    _logger.info("altered topic %s in %d log roots", topic, len(online))


def _add_partitions(
    roots: RootSet, online: Mapping[int, LogRoot], topic: str, partitions: int
) -> None:
    check_partition_count(topic, partitions)
    states = _states(roots, online, topic)
    if partitions <= len(states):
        raise InvalidPartitionsError(
            f"topic {topic} has {len(states)} partitions: their number can only grow",
            got=partitions,
            expected=f"at least {len(states) + 1}",
        )
    replicas, topic_id = states[0].replicas, states[0].topic_id
    isr = tuple(node for node in replicas if node in online)
    if not isr:
        raise InvalidReplicationFactorError(
            f"no log root with a replica of topic {topic} is online", got=list(replicas)
        )
    added = range(len(states), partitions)
    for number in added:
        state = PartitionState(topic_id=topic_id, replicas=replicas, isr=isr, leader=isr[0])
        roots.register(TopicPartition(topic, number)).create(state)
    _make_directories(online, topic, topic_id, dict.fromkeys(added, replicas))


def _check_exists(roots: RootSet, online: Mapping[int, LogRoot], topic: str) -> None:
    if not any(topic_exists(root, topic) for root in online.values()):
        raise unknown_topic_error(roots.home.path, topic, list_topics(roots.home))


def _states(roots: RootSet, online: Mapping[int, LogRoot], topic: str) -> dict[int, PartitionState]:
    """Return the states of the partitions that exist, by number."""
    states = {}
    for partition in _registered(roots):
        if partition.topic == topic:
            with contextlib.suppress(UnknownTopicError), _unless_unfinished(online, partition):
                states[partition.partition] = roots.register(partition).read()
    return dict(sorted(states.items()))


@contextlib.contextmanager
def _unless_unfinished(online: Mapping[int, LogRoot], partition: TopicPartition) -> Iterator[None]:
    """Ignore a register without a majority if its creation has not ended: no root has a replica."""
    try:
        yield
    except NoQuorumError:
        if any(root.fs.stat(root.partition(partition)) is not None for root in online.values()):
            raise


def _registered(roots: RootSet) -> list[TopicPartition]:
    named = map(parse_partition_directory, roots.register_names())
    return sorted(each for each in named if each is not None)


# ---- deletion ---------------------------------------------------------------------------------
def delete_replicated(roots: RootSet, topic: str) -> list[str]:
    """Delete a replicated topic, durably; return the paths of foreign files left behind.

    A root that is offline sets its copy aside when it returns.

    Raises:
        UnknownTopicError: There is no such topic.
        NoQuorumError: Less than a majority of the roots is online.
        UnavailableError: A writer held the lock of a partition, or a disk failed; the next deletion
            continues.
    """
    left = []
    with lists_locked(roots, what=f"delete topic {topic}") as online:
        is_there = any(topic_exists(root, topic) for root in online.values())
        if not is_there and not any(
            root.fs.stat(root.deleted_topic(topic)) for root in online.values()
        ):
            known = list_topics(roots.home)
            raise unknown_topic_error(roots.home.path, topic, known, is_wanted=False)
        partitions = [each for each in _registered(roots) if each.topic == topic]
        for partition in partitions:
            if roots.register(partition).peek() is not None:
                roots.register(partition).delete()
        for root in online.values():
            left += _delete_in(root, topic)
        for partition in partitions:
            roots.register(partition).forget()
    _logger.info("deleted topic %s in %d log roots", topic, len(online))
    return left


def _delete_in(root: LogRoot, topic: str) -> list[str]:
    if topic_exists(root, topic):
        root.fs.rename(root.topic_properties(topic), root.deleted_topic(topic))
    return finish_deletion(root, topic)


# ---- a root that returns ----------------------------------------------------------------------
def restore(roots: RootSet) -> None:
    """Give every root that is online what it missed: topics, registers, settings, the list.

    A root that was emptied is made again under its own node. Its partitions are empty until their
    leaders copy to them.

    Raises:
        NoQuorumError: Less than a majority of the roots is online.
        LockTimeoutError: Another process held a list of topics.
    """
    for each in roots.list.roots:
        try:
            _refill(roots, each.node)
        except UnavailableError as error:
            _logger.info("node %d was not filled: %s", each.node, error)
    with lists_locked(roots, what="restore log roots") as online:
        for node in online:
            roots.write_list(node)
        for topic in sorted({partition.topic for partition in _registered(roots)}):
            try:
                _restore_topic(roots, online, topic)
            except NoQuorumError as error:
                _logger.warning("topic %s was not restored: %s", topic, error)
        if COMMITS in roots.register_names():
            try:
                _restore_register(roots, online, COMMITS)
            except NoQuorumError as error:
                _logger.warning("the register of commits was not restored: %s", error)


def restore_if_due(roots: RootSet) -> None:
    """Restore the roots if one of them seems to have missed something; only logs a failure.

    Compares the lists of roots, the names of the registers, and one register of each topic.
    """
    try:
        if _is_restore_due(roots):
            restore(roots)
    except (UnavailableError, FencedError) as error:
        _logger.info("the log roots were not restored: %s", error)


def _is_restore_due(roots: RootSet) -> bool:
    online = roots.online()
    for node in roots.node_ids:
        with contextlib.suppress(StorageError):
            if node not in online and roots.is_emptied(node):
                return True
    try:
        if any(read_root_list(root) != roots.list for root in online.values()):
            return True
        if len({tuple(_registers_in(root)) for root in online.values()}) > 1:
            return True
        last = {each.topic: each for each in _registered(roots)}  # registers change in this order
        return any(_has_missed(roots, online, each) for each in last.values())
    except CorruptDataError:
        return True


def _registers_in(root: LogRoot) -> list[str]:
    try:
        return [name for name in root.fs.list(root.replication) if not is_temporary(name)]
    except FileMissingError:
        return []


def _has_missed(roots: RootSet, online: Mapping[int, LogRoot], partition: TopicPartition) -> bool:
    """Return whether the roots disagree on a topic, or others than the listed ones vote on it."""
    if len({topic_exists(root, partition.topic) for root in online.values()}) > 1:
        return True
    name = str(partition)
    files = {node: RegisterFile(root, name).acceptor() for node, root in online.items()}
    value = latest(each.accepted for each in files.values() if each is not None)
    if value is None:
        return False
    present = {Voter(node, each.incarnation) for node, each in files.items() if each is not None}
    return not present <= {*value.voters} or not {*roots.node_ids} >= {
        voter.node for voter in value.voters
    }


def _refill(roots: RootSet, node: int) -> None:
    """Make a root again if its disk was replaced by an empty one."""
    root = roots.root(node)
    if stat_directory(root.fs, root.path) is None or roots.problem(node) is None:
        return
    if not roots.is_emptied(node):
        return
    others = [each for each in roots.online() if each != node]
    roots.check_majority(others, what=f"fill the emptied log root of node {node}")
    meta = MetaProperties(1, roots.list.cluster_id, node, new_topic_id(root.random))
    make_root(root, meta=meta)
    _logger.warning("made the emptied log root %s of node %d again", root.path, node)


def _restore_topic(roots: RootSet, online: Mapping[int, LogRoot], topic: str) -> None:
    holders = [root for root in online.values() if topic_exists(root, topic)]
    partitions = [each for each in _registered(roots) if each.topic == topic]
    states: dict[TopicPartition, PartitionState | None] = {}
    for partition in partitions:
        if partition.partition == 0 and holders:
            states[partition] = _restore_register(roots, online, str(partition))
        else:
            with _unless_unfinished(online, partition):
                states[partition] = _restore_register(roots, online, str(partition))
        state = states.get(partition)
        if state is not None and holders:
            states[partition] = _without_lost_logs(roots, online, holders[0], partition, state)
    first = states.get(TopicPartition(topic, 0))
    if first is None:
        for root in holders:
            if is_replicated(root, topic):
                _logger.warning("topic %s in %s was deleted meanwhile", topic, root.path)
                _set_strays_aside(root, partitions, None)
                _delete_in(root, topic)
        for partition in partitions:
            with contextlib.suppress(NoQuorumError):  # most files may be gone
                roots.register(partition).delete()
            roots.register(partition).forget()
        return
    if not holders:
        return  # its creation has not ended
    for node, root in online.items():
        _set_strays_aside(root, partitions, first.topic_id)
        for partition, state in states.items():
            if state is not None and node in state.replicas:
                if root.fs.stat(root.partition(partition)) is None:
                    # It left the ISR above. A recovery point would say that its records are lost.
                    checkpoints.remove_partition(root, partition)
                make_partition(root, partition, state.topic_id)
        root.fs.sync_directory(root.path)
    _restore_properties(roots, online, holders, topic)


def _restore_register(
    roots: RootSet, online: Mapping[int, LogRoot], name: str
) -> PartitionState | None:
    """Make the roots that are online voters of a register; return its state, None if deleted."""
    register = roots.register(name)
    try:
        state = register.read()
    except UnknownTopicError:
        return None
    except NoQuorumError:
        if register.peek() is None:
            return None  # deleted, and its files are gone from most roots
        raise
    voters = register.voters()
    wanted = [node for node in roots.node_ids if node in online or node in voters]
    if {*wanted} != {*voters}:
        register.align(wanted)
    return state


def _without_lost_logs(
    roots: RootSet,
    online: Mapping[int, LogRoot],
    holder: LogRoot,
    partition: TopicPartition,
    state: PartitionState,
) -> PartitionState:
    """Remove from the ISR the replicas whose directories are gone; return the state.

    Once their directories are made again, empty, they would pass for replicas in sync.
    """
    gone = [
        node
        for node, root in online.items()
        if node in {*state.isr, *state.elr} and root.fs.stat(root.partition(partition)) is None
    ]
    if not gone:
        return state
    config = ConfigFiles(holder, partition.topic).load()
    min_isr = config.min_insync_replicas
    try:
        after = roots.register(partition).change(
            lambda before: unclean_shutdown(before, gone, min_insync_replicas=min_isr),
            state.partition_epoch,
        )
    except InvalidUpdateVersionError as error:  # a writer was faster: the next restore looks again
        raise UnavailableError(
            f"the state of partition {partition} changes", got=str(error)
        ) from error
    _logger.warning("[%s] nodes %s lost their logs: ISR %s", partition, gone, list(after.isr))
    return after


def _set_strays_aside(
    root: LogRoot, partitions: Collection[TopicPartition], topic_id: str | None
) -> None:
    """Rename the directories of partitions with another topic id; all of them for None."""
    found = False
    for partition in partitions:
        path = root.partition(partition)
        there = stat_directory(root.fs, path)
        if there is None or there.kind is not FileKind.DIRECTORY:
            continue
        try:
            own = read_topic_id(root.fs, path)
        except CorruptDataError:
            continue  # opening it reports the damage
        if own is not None and own != topic_id:
            aside = set_aside(root, partition, path, ending=STRAY_SUFFIX)
            _logger.warning("set %s aside as %s: unknown topic id %s", path, aside, own)
            found = True
    if found:
        checkpoints.remove_topic(root, partition.topic)
        root.fs.sync_directory(root.path)


def _restore_properties(
    roots: RootSet, online: Mapping[int, LogRoot], holders: Collection[LogRoot], topic: str
) -> None:
    """Copy the settings that a majority of the roots holds, or the only version, to the others."""
    texts = Counter(tuple(sorted(read_topic_properties(root, topic).items())) for root in holders)
    chosen, count = texts.most_common(1)[0]
    if len(texts) > 1 and 2 * count <= len(roots.node_ids):
        _logger.warning("the log roots hold different settings of topic %s", topic)
        return
    for root in online.values():
        if root not in holders or read_topic_properties(root, topic) != dict(chosen):
            write_topic_properties(root, topic, dict(chosen))
