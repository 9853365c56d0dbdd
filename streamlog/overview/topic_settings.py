"""The settings of a root and its topics that differ from the defaults.

A root of streamlog keeps them in files. A broker keeps those of topics in the cluster's metadata,
which lies on the disk of a node that is also a controller; its `server.properties` is elsewhere.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from streamlog.config.log_config import LogConfig
from streamlog.config.server_config import ConfigEntry, ConfigSource, ServerConfig, root_settings
from streamlog.config.settings import settings_of, text_of
from streamlog.errors import StreamLogError
from streamlog.fs.log_root import LogRoot
from streamlog.handover.cluster_image import CLUSTER_METADATA, ClusterImage, read_cluster_image
from streamlog.partition.topic_config import read_server_config, read_topic_properties
from streamlog.root.roots import is_our_root

__all__ = ["RootSettings", "changed_root_settings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RootSettings:
    """Where settings come from; see `RootSettings.of`.

    Attributes:
        root: The log root, None for an object store.
        server: Its own settings and its defaults for topics.
        image: The metadata of the cluster that a broker's directory belongs to.
        own: The settings of topics by topic, where they are not in files.
        problem: Why the cluster's metadata cannot be read.
    """

    root: LogRoot | None = None
    server: ServerConfig = field(default_factory=ServerConfig)
    image: ClusterImage | None = None
    own: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    problem: StreamLogError | None = None

    @classmethod
    def of(cls, root: LogRoot) -> "RootSettings":
        """Read the settings of a directory.

        Raises:
            InvalidConfigError: The root's `server.properties` is invalid.
        """
        if is_our_root(root):
            return cls(root=root, server=read_server_config(root))
        metadata = f"{root.path}/{CLUSTER_METADATA}"
        if root.fs.stat(metadata) is None:
            return cls(root=root)
        try:
            image = read_cluster_image(root.fs, metadata)
        except StreamLogError as error:
            return cls(root=root, problem=error)
        own = {name: topic.configs for name, topic in image.topics.items()}
        return cls(root=root, image=image, own=own)

    @property
    def are_known(self) -> bool:
        """Whether the settings in force are in the root; False for the disk of a broker."""
        return self.root is None or is_our_root(self.root)

    def of_topic(self, topic: str) -> tuple[LogConfig, tuple[ConfigEntry, ...]]:
        """Return the settings of a topic, and those that differ from the defaults.

        Raises:
            InvalidConfigError: A file has an unknown key or an invalid value.
        """
        if self.root is not None and is_our_root(self.root):
            own: Mapping[str, str] = read_topic_properties(self.root, topic)
        else:
            own = self.own.get(topic, {})
        known = {key: value for key, value in own.items() if key in settings_of(LogConfig)}
        entries = self.server.describe(known if self.own else own)
        changed = [each for each in entries if each.source is not ConfigSource.DEFAULT]
        # What only a broker knows is shown, too.
        foreign = [
            ConfigEntry(key, value, ConfigSource.TOPIC)
            for key, value in sorted(own.items())
            if key not in known
        ]
        return self.server.log_config(known), (*changed, *foreign)


def changed_root_settings(server: ServerConfig) -> tuple[ConfigEntry, ...]:
    """Return the settings of a root that differ from the defaults, sorted by key."""
    usual = ServerConfig()
    own = {
        key: text_of(server.value(key))
        for key in root_settings()
        if server.value(key) != usual.value(key)
    }
    changed = {**own, **server.topic_defaults}
    return tuple(ConfigEntry(*each, ConfigSource.SERVER) for each in sorted(changed.items()))
