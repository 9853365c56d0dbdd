"""The settings of a topic that its copy can have."""

from collections.abc import Callable, Mapping

from streamlog.errors import InvalidConfigError

__all__ = ["accepted_configs"]


def accepted_configs(
    configs: Mapping[str, str], check: Callable[[dict[str, str]], object]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the settings that a target accepts, and remarks about the others.

    Args:
        configs: The topic's own settings at the source.
        check: Raises InvalidConfigError for settings that the target does not accept.
    """
    kept, remarks = {}, []
    for key, value in configs.items():
        try:
            check({key: value})
            kept[key] = value
        except InvalidConfigError as error:
            remarks.append(f"{key}={value} is not taken over: {error.what}")
    return kept, tuple(remarks)
