"""How two replicas lose a committed record, or diverge, and how leader epochs prevent it.

    python examples/replica_histories.py

Prints two histories step by step, each under the old rule (a follower truncates to its high
watermark) and under the rule in use (it truncates by leader epochs); then how log end offsets (LEO)
and high watermarks (HW) move with each message. No disk and no network takes part: this drives the
same state machines that streamlog's replicas use.
"""

from streamlog.partition.epochs import LeaderEpochCache
from streamlog.replication.election import ElectionType, elect
from streamlog.replication.follower import Follower
from streamlog.replication.isr import ReplicationSettings
from streamlog.replication.leader import Leader
from streamlog.replication.messages import Fetch
from streamlog.replication.partition_state import PartitionState
from streamlog.replication.truncation import TruncationRule

OLD, NEW = TruncationRule.TRUNCATE_TO_HIGH_WATERMARK, TruncationRule.KIP_320


class Replica:
    """A replica: records in memory, a high watermark, and the role that it has."""

    def __init__(self, node):
        self.node = node
        self.name = "AB"[node]
        self.records = []  # texts such as m1@0: message and leader epoch
        self.epochs = LeaderEpochCache()
        self.log_start_offset = 0
        self.high_watermark = 0
        self.role = None

    @property
    def log_end_offset(self):
        return len(self.records)

    def append(self, record):
        epoch = int(record.split("@")[1])
        if self.epochs.latest_epoch is None or epoch > self.epochs.latest_epoch:
            self.epochs.assign(epoch, self.log_end_offset)
        self.records.append(record)

    def truncate(self, offset):
        del self.records[offset:]
        self.epochs.truncate_from_end(offset)

    def stop(self, *, unsynced=0):
        """Die; records that were not synced are gone after a power cut."""
        if self.role is not None:
            self.high_watermark = self.role.high_watermark
        self.role = None
        self.truncate(self.log_end_offset - unsynced)
        self.high_watermark = min(self.high_watermark, self.log_end_offset)


class Partition:
    """Two replicas, A and B, under one truncation rule."""

    def __init__(self, rule, *, leader):
        self.settings = ReplicationSettings(rule=rule)
        self.now_ms = 0
        self.a, self.b = Replica(0), Replica(1)
        self.replicas = (self.a, self.b)
        self.state = PartitionState(topic_id="t" * 22, replicas=(0, 1), isr=(0, 1), leader=leader)
        self.lead(self.replicas[leader])
        self.follow(self.replicas[1 - leader])

    def lead(self, replica):
        replica.role = Leader(
            replica.node,
            self.state,
            replica,
            self.settings,
            high_watermark=replica.high_watermark,
            now_ms=self.now_ms,
        )

    def follow(self, replica):
        """Become a follower: truncate first, as the rule says. Returns the question asked."""
        replica.role = Follower(
            replica.node, self.state, replica, self.settings, high_watermark=replica.high_watermark
        )
        leader = self.replicas[self.state.leader].role
        asked = ""
        while not isinstance(request := replica.role.request(), Fetch):
            if leader is None and request.leader_epoch >= 0:
                return asked  # nobody answers yet
            answer = leader.offsets_for_leader_epoch(request)
            if request.leader_epoch >= 0:
                asked = (
                    f", asks for the end of epoch {request.leader_epoch}: {answer.end.end_offset}"
                )
            replica.truncate(replica.role.epoch_answered(answer).truncate_to)
        return asked

    def elect(self, online):
        """Elect a leader among the replicas that are online."""
        nodes = [replica.node for replica in online]
        found = elect(self.state, ElectionType.ONLINE, online=nodes, min_insync_replicas=1)
        self.state = found.state
        self.lead(self.replicas[found.leader])

    def produce(self, message):
        leader = self.replicas[self.state.leader]
        leader.append(f"{message}@{self.state.leader_epoch}")
        leader.role.appended(self.now_ms)

    def fetch(self, follower):
        """Send the fetch of a follower; returns the answer, None while it is parked."""
        leader = self.replicas[self.state.leader].role
        return leader.fetch(follower.role.request(), self.now_ms)

    def released(self):
        """Return the answer of the parked fetch, if it is due."""
        answers = self.replicas[self.state.leader].role.released(self.now_ms)
        return answers[0].response if answers else None

    def receive(self, follower, answer):
        """Let a follower act on an answer."""
        leader = self.replicas[self.state.leader]
        step = follower.role.fetched(answer)
        if step.truncate_to is not None:
            follower.truncate(step.truncate_to)
        for record in leader.records[follower.log_end_offset : step.append_to or 0]:
            follower.append(record)

    def replicate(self, follower):
        """Fetch until nothing is left to fetch; the last fetch stays parked."""
        while (answer := self.fetch(follower)) is not None:
            self.receive(follower, answer)


class History:
    """Collects the steps of a history and prints them as a table."""

    def __init__(self, partition):
        self.partition = partition

    def step(self, text):
        columns = [self._replica(each) for each in self.partition.replicas]
        print(f"  {text:<52}{columns[0]:<26}{columns[1]}")

    def _replica(self, replica):
        role = replica.role
        mark = "*" if isinstance(role, Leader) else " "
        if role is None:
            return f"{replica.name}  down"
        log = " ".join(replica.records) or "-"
        return f"{replica.name}{mark} {log:<10}  HW {role.high_watermark}"


def loss(rule):
    """S1: an acknowledged record is lost when the follower restarts and then leads."""
    partition = Partition(rule, leader=1)
    a, b = partition.replicas
    history = History(partition)
    partition.produce("m1")
    partition.replicate(a)
    history.step("1 B appends m1, A fetches it")
    partition.produce("m2")
    partition.receive(a, partition.released())
    history.step("2 B appends m2, A receives it with HW 1")
    partition.fetch(a)
    history.step("3 A fetches offset 2: m2 is acknowledged")
    a.stop()
    asked = partition.follow(a)
    history.step(f"4 A restarts{asked}")
    b.stop()
    partition.elect([a])
    history.step(f"5 B dies, A leads in epoch {partition.state.leader_epoch}")
    asked = partition.follow(b)
    history.step(f"6 B is back{asked}")
    verdict(partition, synced=["m1@0", "m2@0"])


def divergence(rule):
    """S2: both lose power, the one that kept less leads first."""
    partition = Partition(rule, leader=0)
    a, b = partition.replicas
    history = History(partition)
    partition.produce("m1")
    partition.replicate(b)
    partition.produce("m2")
    partition.receive(b, partition.released())
    partition.fetch(b)
    history.step("1 both have m1 and m2, m2 is not synced on B")
    a.stop()
    b.stop(unsynced=1)
    history.step("2 power cut: B loses m2")
    partition.elect([b])
    partition.produce("m3")
    history.step("3 B starts first, leads in epoch 1, appends m3")
    asked = partition.follow(a)
    history.step(f"4 A follows{asked}")
    partition.replicate(a)
    history.step("5 A fetches")
    verdict(partition, synced=["m1@0"])  # m2 was acknowledged too soon: B had not synced it


def verdict(partition, *, synced):
    a, b = partition.replicas
    lost = [record for record in synced if record not in a.records]
    if lost:
        print(f"  => {', '.join(lost)} was acknowledged, synced everywhere, and is LOST")
    if a.records != b.records:
        print("  => the logs have DIVERGED, and no later step detects it")
    if not lost and a.records == b.records:
        print("  => the logs are the same, and no synced record is lost")
    print()


class Positions:
    """Prints the positions of leader A and follower B after each message."""

    def __init__(self):
        self.partition = Partition(NEW, leader=0)
        self._follower = self.partition.b
        print(f"  {'message':<42} leader: LEO  remote LEO  HW    follower: LEO  HW")
        self.row("(start)")

    def row(self, message):
        a, b = self.partition.replicas
        remote = a.role.followers[b.node].log_end_offset
        print(
            f"  {message:<42} {a.log_end_offset:>11}  {'?' if remote < 0 else remote:>10}  "
            f"{a.role.high_watermark:>2}  {b.log_end_offset:>14}  {b.role.high_watermark:>2}"
        )

    def produce(self, message):
        self.partition.produce(message)
        self.row(f"produce {message}")

    def fetch(self):
        answer = self.partition.fetch(self._follower)
        parked = ", parked" if answer is None else ""
        self.row(f"fetch from offset {self._follower.log_end_offset}{parked}")
        return answer

    def wait(self):
        self.partition.now_ms += self.partition.settings.replica_fetch_wait_max_ms

    def answer(self, answer):
        count = answer.end_offset - answer.fetch_offset
        carried = ", ".join(self.partition.a.records[answer.fetch_offset : answer.end_offset])
        self.partition.receive(self._follower, answer)
        self.row(f"answer: {carried if count else 'nothing'}, HW {answer.high_watermark}")


def fetch_before_produce():
    """The fetch waits in vain; the next one finds the record at once."""
    table = Positions()
    table.fetch()
    table.wait()
    table.answer(table.partition.released())
    table.produce("m1")
    table.answer(table.fetch())
    table.fetch()
    table.wait()
    table.answer(table.partition.released())
    print()


def parked_fetch():
    """The record arrives while the fetch waits."""
    table = Positions()
    table.fetch()
    table.produce("m1")
    table.answer(table.partition.released())
    table.fetch()
    table.produce("m2")
    table.answer(table.partition.released())
    table.fetch()
    table.wait()
    table.answer(table.partition.released())
    print()


def main():
    rules = {OLD: "old: truncate to the high watermark", NEW: "now: truncate by leader epochs"}
    for title, history in (
        ("An acknowledged record is lost", loss),
        ("Two logs diverge", divergence),
    ):
        for rule, name in rules.items():
            print(f"{title} ({name})")
            history(rule)
    print("Fetch before produce")
    fetch_before_produce()
    print("Parked fetch")
    parked_fetch()
    print("* leads. A record is written as message@epoch; records below HW are committed.")


if __name__ == "__main__":
    main()
