"""A program for quixstreams: counts the words of `lines` into `counts`, exactly once.

Arguments: bootstrap servers, directory for its state.
"""

import sys

from quixstreams import Application, State
from quixstreams.models import TopicConfig


def count(word: str, state: State) -> str:
    """Return how often the word came, this time included."""
    number: int = state.get("count", 0) + 1
    state.set("count", number)
    return str(number)


def main(bootstrap: str, state_dir: str) -> None:
    """Run until the process is ended."""
    app = Application(
        broker_address=bootstrap,
        consumer_group="quix",
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once",
        commit_interval=0.2,
        state_dir=state_dir,
        consumer_extra_config={"session.timeout.ms": 6000},
    )
    lines = app.topic("lines", key_deserializer="str", value_deserializer="str")
    counts = app.topic(
        "counts",
        key_serializer="str",
        value_serializer="str",
        config=TopicConfig(num_partitions=2, replication_factor=1),
    )
    words = app.dataframe(lines).apply(str.split, expand=True)
    words = words.group_by(
        lambda word: word, name="words", key_serializer="str", key_deserializer="str"
    )
    words.apply(count, stateful=True).to_topic(counts)
    app.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
