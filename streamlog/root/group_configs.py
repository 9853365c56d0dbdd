"""Settings of consumer groups, as clients changed them.

    .streamlog/group-configs    a sealed file: by group, its own settings by key

A broker keeps them in the metadata of its cluster, so a handover takes them along. Kafka's other
group settings (of share groups, say) are kept too, though nothing here follows them.
"""

from collections.abc import Mapping
from typing import Final

from streamlog.binary.sealed import MAX_SEALED_SIZE, seal, unseal
from streamlog.errors import FileMissingError
from streamlog.fs.files import read_file, write_file_atomically
from streamlog.fs.log_root import LogRoot

__all__ = ["read_group_configs", "write_group_configs"]

__all__ = ["read_group_configs", "write_group_configs"]

_KIND: Final = "group-configs"


def read_group_configs(root: LogRoot) -> dict[str, dict[str, str]]:
    """Return the settings that groups have of their own.

    Raises:
        CorruptDataError: The file is damaged.
        StorageError: The file cannot be read.
    """
    path = root.group_configs
    try:
        content = read_file(root.fs, path, max_size=MAX_SEALED_SIZE)
    except FileMissingError:
        return {}
    return {
        group.text("group"): {
            each.text("key"): each.text("value") for each in group.objects("configs")
        }
        for group in unseal(_KIND, content, path).objects("groups")
    }


def write_group_configs(root: LogRoot, configs: Mapping[str, Mapping[str, str]]) -> None:
    """Replace the settings of all groups, by group and key; groups without any are left out.

    Raises:
        StorageError: They were not written.
    """
    groups = [
        {
            "group": group,
            "configs": [{"key": key, "value": own[key]} for key in sorted(own)],
        }
        for group, own in sorted(configs.items())
        if own
    ]
    write_file_atomically(root.fs, root.group_configs, seal(_KIND, {"groups": groups}))
