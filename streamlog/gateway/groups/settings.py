"""The settings of each consumer group, in memory and on disk."""

import logging
import threading
from collections.abc import Mapping
from typing import Final

from streamlog.config.group_config import GroupConfig
from streamlog.errors import InvalidConfigError
from streamlog.gateway.broker import Broker
from streamlog.root.group_configs import read_group_configs, write_group_configs

__all__ = ["GroupSettings"]

_logger: Final = logging.getLogger(__name__)


class GroupSettings:
    """What groups have of their own over the server's settings; used from any thread.

    Args:
        broker: The broker.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._guard = threading.Lock()
        self._own: dict[str, dict[str, str]] = {}

    def load(self) -> None:
        """Read them; called once before all else, in a thread.

        Raises:
            CorruptDataError: The file is damaged.
        """
        self._own = read_group_configs(self._broker.manager.log_root)

    def groups(self) -> list[str]:
        """Return the groups that have settings of their own."""
        return sorted(self._own)

    def own(self, group_id: str) -> Mapping[str, str]:
        """Return what a group has of its own."""
        return self._own.get(group_id, {})

    def of(self, group_id: str) -> GroupConfig:
        """Return the settings in force for a group."""
        server = self._broker.config.serve
        try:
            return GroupConfig.of_server(server, self.own(group_id))
        except InvalidConfigError as error:  # the server's settings have changed since
            _logger.warning("settings of group %s are ignored: %s", group_id, error)
            return GroupConfig.of_server(server, {})

    def replace(self, group_id: str, wanted: Mapping[str, str], *, only_check: bool) -> None:
        """Replace what a group has of its own; in a thread.

        Raises:
            InvalidConfigError: An unknown key or an invalid value; nothing has changed.
            StorageError: They could not be stored; nothing has changed.
        """
        GroupConfig.check(self._broker.config.serve, wanted)
        with self._guard:
            if only_check or wanted == self.own(group_id):
                return
            changed = {**self._own, group_id: dict(wanted)}
            write_group_configs(self._broker.manager.log_root, changed)
            self._own = {group: own for group, own in changed.items() if own}
