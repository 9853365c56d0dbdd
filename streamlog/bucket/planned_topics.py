"""The topics that the tasks of a commit write to, as its driver knew them.

Tasks get them with their other arguments, so that they read no journal. The commit gets them back:
batches that were encoded by the settings of a topic need no check while those are the same.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from streamlog.bucket.state import RootState, TopicState
from streamlog.config.log_config import LogConfig

__all__ = ["PlannedTopics"]


class PlannedTopics(NamedTuple):
    """Topics with their settings; small and picklable.

    Attributes:
        config: The settings of the root's server.
        topics: The topics by name.
    """

    config: Mapping[str, str]
    topics: Mapping[str, TopicState]

    @classmethod
    def of(cls, state: RootState, names: Collection[str] | None = None) -> "PlannedTopics":
        """Return the named topics of a root, as far as they exist; None: all."""
        chosen = state.topics if names is None else {each for each in names if each in state.topics}
        return cls(dict(state.config), {name: state.topics[name] for name in sorted(chosen)})

    def config_of(self, topic: str) -> LogConfig:
        """Return the settings of a topic, as `RootState.config_of` does."""
        return RootState(config=self.config, topics=self.topics).config_of(topic)

    def only(self, names: Collection[str]) -> "PlannedTopics":
        """Return some of the topics."""
        return PlannedTopics(
            self.config, {name: at for name, at in self.topics.items() if name in names}
        )

    @staticmethod
    def configs(planned: Iterable["PlannedTopics"]) -> dict[str, LogConfig]:
        """Return the settings that all tasks encoded by; none of a topic on which they differ."""
        seen: list[PlannedTopics] = []
        found: dict[str, LogConfig | None] = {}
        for each in planned:
            if each in seen:  # nearly always: the tasks of a trigger share one plan
                continue
            seen.append(each)
            for topic in each.topics:
                config = each.config_of(topic)
                found[topic] = config if found.get(topic, config) == config else None
        return {topic: config for topic, config in found.items() if config is not None}
