"""Settings of a consumer group (KIP-848), under the keys that Kafka gives them.

They are declared like topic settings, see `streamlog.config.log_config`; a group without a setting
of its own has that of the server.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from streamlog.config.serve_config import ServeConfig
from streamlog.config.settings import (
    INT,
    at_least,
    check_order,
    check_settings,
    setting,
    settings_of,
    text_of,
    unknown_key_error,
)
from streamlog.errors import InvalidConfigError

__all__ = ["GroupConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """How a consumer group is kept; checked on creation.

    Args: one for each key, `consumer_session_timeout_ms` for `consumer.session.timeout.ms`.

    Raises:
        InvalidConfigError: A value has the wrong type or is out of bounds.

    Source: org.apache.kafka.coordinator.group.GroupConfig; Kafka 4.2.
    """

    # fmt: off
    consumer_session_timeout_ms: int = setting(
        "consumer.session.timeout.ms", INT, at_least(1),
        "How long a member of the group may be silent.",
        default=45_000, unit="ms", broker="group.consumer.session.timeout.ms",
    )
    consumer_heartbeat_interval_ms: int = setting(
        "consumer.heartbeat.interval.ms", INT, at_least(1),
        "Interval at which members of the group send heartbeats.",
        default=5_000, unit="ms", broker="group.consumer.heartbeat.interval.ms",
    )
    # fmt: on

    def __post_init__(self) -> None:
        check_settings(self)
        check_order(
            self, "consumer.heartbeat.interval.ms", "consumer.session.timeout.ms", is_strict=True
        )

    @staticmethod
    def of_server(server: ServeConfig, properties: Mapping[str, str]) -> "GroupConfig":
        """Return the settings in force: a group's own, then the server's.

        Args:
            server: The settings of the server.
            properties: The group's own; keys of other kinds of groups are ignored.

        Raises:
            InvalidConfigError: An invalid value.
        """
        return GroupConfig(
            **{
                each.name: each.parse(properties[key])
                if key in properties
                else getattr(server, _name(each.broker[0].key))
                for key, each in settings_of(GroupConfig).items()
            }
        )

    @staticmethod
    def check(server: ServeConfig, properties: Mapping[str, str]) -> None:
        """Check that a group may have these settings of its own.

        Raises:
            InvalidConfigError: An unknown key, or a value outside the bounds that the server sets.
        """
        own = settings_of(GroupConfig)
        for key in properties:
            if key not in own:
                raise unknown_key_error(key, own, what="group setting", path=None)
        config = GroupConfig.of_server(server, properties)
        for key in properties:
            value, kind = getattr(config, own[key].name), key.removeprefix("consumer.")
            least, most = (f"group.consumer.{each}.{kind}" for each in ("min", "max"))
            low, high = getattr(server, _name(least)), getattr(server, _name(most))
            if not low <= value <= high:
                raise InvalidConfigError(
                    f"invalid value for {key}",
                    got=text_of(value),
                    expected=f"from {low} ({least}) to {high} ({most})",
                )

    def to_properties(self) -> dict[str, str]:
        """Return the settings under their keys, as text."""
        own = settings_of(GroupConfig)
        return {key: text_of(getattr(self, each.name)) for key, each in own.items()}


def _name(key: str) -> str:
    return key.replace(".", "_")
