"""Ask a gateway and a real broker the same, and compare the answers field by field.

    python -m tests.programs.wire.compare [--all]

Each scenario runs on both sides. Prints one line per answer that differs, with the fields that do;
`--all` prints the equal ones, too. Exit code 1 if an answer differs that `KNOWN` does not explain.
"""

import argparse
import contextlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from streamlog import LogManager
from streamlog.gateway import serve
from tests.programs.compat.broker import Broker, format_log_dir
from tests.programs.wire.group_dialogues import GROUP_DIALOGUES
from tests.programs.wire.scenarios import SCENARIOS
from tests.programs.wire.side import Side, Step
from tests.programs.wire.transaction_dialogues import TRANSACTION_DIALOGUES

Scenario = Callable[[Side], Iterator[Step]]

ALL: Final[tuple[Scenario, ...]] = (
    *SCENARIOS,
    *GROUP_DIALOGUES,
    *TRANSACTION_DIALOGUES,
)

# Groups and transactional ids share partitions, few enough for a broker to create at once.
_PARTITIONS: Final = {
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
}
_BROKER: Final = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "log.initial.task.delay.ms": "3600000",  # retention would delete records of long ago
}

# Why an answer differs on purpose, by the beginning of its name and the field's path.
KNOWN: Final[dict[tuple[str, str], str]] = {
    ("CreateTopics", ".topicId"): "a topic that was only checked has no id",
    ("Fetch", ".abortedTransactions: None, the broker []"): "null and no element say the same",
    (
        "TxnOffsetCommit",
        ".errorCode: 49, the broker 0",
    ): "a broker does not look at the id of a producer whose transaction it knows",
    ("DescribeConfigs", ".readOnly"): "the broker's settings are those of a file",
}


@contextlib.contextmanager
def both(folder: Path) -> Iterator[tuple[Side, Side]]:
    """Yield a gateway and a broker, both empty."""
    log_dir = folder / "broker"
    (folder / "format").mkdir()
    format_log_dir(log_dir, folder / "format")
    root = folder / "root"
    with LogManager.open(root, create=True):
        pass
    with (root / ".streamlog/server.properties").open("a") as file:
        file.writelines(f"{key}={value}\n" for key, value in _PARTITIONS.items())
    settings = _PARTITIONS | _BROKER
    with Broker.start(log_dir, folder / "scratch", settings) as broker, serve(root) as gateway:
        ours, theirs = Side(gateway.bootstrap_servers), Side(broker.bootstrap)
        deadline = time.monotonic() + 60
        while not (theirs.ask("Metadata", 12, topics=[]) or {}).get("brokers"):
            if time.monotonic() > deadline:
                raise TimeoutError("the broker has no metadata")
            time.sleep(0.2)
        for side in (ours, theirs):
            _use_up_producer_zero(side)
        yield ours, theirs
        ours.close()
        theirs.close()


def _use_up_producer_zero(side: Side) -> None:
    """Have an id given out before the scenarios ask for theirs.

    An empty broker's first producer id is 0, which stands for "no producer" in answers, too:
    masking cannot know which of them a 0 is.
    """
    idempotent = {"transactionalId": None, "transactionTimeoutMs": 60_000}
    deadline = time.monotonic() + 60
    while side.ask("InitProducerId", 4, producerId=-1, producerEpoch=-1, **idempotent)["errorCode"]:
        if time.monotonic() > deadline:
            raise TimeoutError("no producer id is given out")
        time.sleep(0.05)


def differences(ours: Any, theirs: Any, path: str = "") -> Iterator[str]:
    """Yield where two answers differ."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in ours.keys() | theirs.keys():
            yield from differences(ours.get(key), theirs.get(key), f"{path}.{key}")
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for number, pair in enumerate(zip(ours, theirs, strict=True)):
            yield from differences(*pair, f"{path}[{number}]")
    elif ours != theirs:
        yield f"{path}: {_short(ours)}, the broker {_short(theirs)}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 400 else f"{text[:397]}..."


def main() -> int:
    """Compare the scenarios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true", help="print equal answers, too")
    parser.add_argument("--only", help="only scenarios whose name contains this")
    arguments = parser.parse_args()
    same = different = 0
    with tempfile.TemporaryDirectory() as folder, both(Path(folder)) as (ours, theirs):
        for scenario in ALL:
            if arguments.only and arguments.only not in scenario.__name__:
                continue
            mine, real = dict(scenario(ours)), dict(scenario(theirs))
            for what, answer in real.items():
                found = unexplained(what, mine.get(what), answer)
                same, different = same + (not found), different + bool(found)
                if found or arguments.all:
                    print(f"{'DIFFERS' if found else 'same'}  {what}")
                for each in found:
                    print(f"         {each}")
    print(f"{same} answers are the same, {different} differ")
    return 1 if different else 0


def unexplained(what: str, ours: Any, theirs: Any) -> list[str]:
    """Return where two answers to the same question differ, unless `KNOWN` says why."""
    return [
        each
        for each in sorted(differences(ours, theirs))
        if not any(what.startswith(name) and path in each for name, path in KNOWN)
    ]


if __name__ == "__main__":
    sys.exit(main())
