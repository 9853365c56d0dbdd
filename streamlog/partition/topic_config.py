"""The settings in force for a topic: its own file over the root's over Kafka's defaults.

A log root keeps both files below `.streamlog`; any other directory has neither.
"""

from typing import Final

from streamlog.config.log_config import DEFAULT_MAX_DECOMPRESSED_BYTES, LogConfig
from streamlog.config.properties import parse_properties
from streamlog.config.server_config import ServerConfig
from streamlog.config.settings import MAX_INT
from streamlog.errors import (
    CorruptDataError,
    FileMissingError,
    InvalidConfigError,
    InvalidOptionError,
    StorageError,
)
from streamlog.fs.api import FileSystem
from streamlog.fs.files import read_file
from streamlog.fs.log_root import LogRoot

__all__ = [
    "ConfigFiles",
    "ServerSettings",
    "check_decompressed_bytes",
    "read_properties",
    "read_server_config",
    "read_topic_properties",
    "readable_decompressed_bytes",
]

_MAX_PROPERTIES_SIZE: Final = 1 << 20


# ---- what they say --------------------------------------------------------------------------
def read_server_config(root: LogRoot) -> ServerConfig:
    """Return a root's settings; Kafka's defaults where it is a foreign one.

    Raises:
        InvalidConfigError: A key or value that cannot be.
        StorageError: The file cannot be read.
    """
    path = root.server_properties
    return ServerConfig.from_properties(read_properties(root.fs, path) or {}, path=path)


def read_properties(fs: FileSystem, path: str) -> dict[str, str] | None:
    """Return the keys and values of a `.properties` file, None where there is no file.

    Raises:
        InvalidConfigError: The file is not such a text.
        StorageError: The file cannot be read.
    """
    try:
        data = read_file(fs, path, max_size=_MAX_PROPERTIES_SIZE)
    except FileMissingError:
        return None
    try:
        return parse_properties(data.decode("utf-8"), path)
    except UnicodeDecodeError as error:
        raise InvalidConfigError(
            "settings file is not UTF-8", path=path, position=error.start
        ) from error


def read_topic_properties(root: LogRoot, topic: str) -> dict[str, str]:
    """Return the settings that a topic has of its own; none in a foreign root.

    Raises:
        InvalidConfigError: The file cannot be understood.
        StorageError: The file cannot be read.
    """
    return read_properties(root.fs, root.topic_properties(topic)) or {}


_Stamp = tuple[int, int, int] | None  # modification time, inode, size; None: no file


def _stamp(fs: FileSystem, path: str) -> _Stamp:
    found = fs.stat(path)
    return None if found is None else (found.mtime_ns, found.inode, found.size)


class ServerSettings:
    """A root's settings, parsed once for all its partitions and again when the file changes."""

    __slots__ = ("_known", "_root")

    def __init__(self, root: LogRoot) -> None:
        self._root = root
        self._known: tuple[_Stamp, ServerConfig] | None = None

    def load(self) -> ServerConfig:
        """Return the settings in force now; one `stat` call if the file is unchanged.

        Raises:
            InvalidConfigError: An unknown key or an invalid value.
        """
        stamp = _stamp(self._root.fs, self._root.server_properties)
        known = self._known
        if known is None or known[0] != stamp:
            known = self._known = stamp, read_server_config(self._root)
        return known[1]


class ConfigFiles:
    """The effective settings of one topic, read again when a file changes.

    Args:
        root: The log root.
        topic: The topic; it may have no file.
        server: The root's settings, shared by its topics; None: its own copy.
    """

    __slots__ = ("_paths", "_root", "_server", "_stamps", "_topic")

    def __init__(self, root: LogRoot, topic: str, server: ServerSettings | None = None) -> None:
        self._root, self._topic = root, topic
        self._server = server or ServerSettings(root)
        self._paths = (root.server_properties, root.topic_properties(topic))
        self._stamps: list[_Stamp] | None = None

    def has_changed(self) -> bool:
        """Whether a file was replaced since the last `load`; two `stat` calls."""
        return self._stamps != self._look()

    def load(self) -> LogConfig:
        """Return the effective settings.

        Raises:
            InvalidConfigError: A file has an unknown key or an invalid value.
            StorageError: A file cannot be read.
        """
        stamps = self._look()
        properties = read_topic_properties(self._root, self._topic)
        config = self._server.load().log_config(properties, path=self._paths[1])
        self._stamps = stamps
        return config

    def _look(self) -> list[_Stamp]:
        return [_stamp(self._root.fs, path) for path in self._paths]


def check_decompressed_bytes(limit: int) -> int:
    """Return `limit`, the size in bytes that a batch may decompress to, if it is valid.

    Raises:
        InvalidOptionError: `limit` is not 1 to 2^31 - 1.
    """
    if not 1 <= limit <= MAX_INT:
        raise InvalidOptionError(
            "invalid limit of the decompressed size of a batch",
            got=limit,
            expected=f"1 to {MAX_INT} bytes",
        )
    return limit


def readable_decompressed_bytes(root: LogRoot, topic: str) -> int:
    """Return the size in bytes that a batch of a topic may decompress to when it is read.

    It is the topic's `streamlog.max.decompressed.bytes`, but no less than its default. Reading
    must not depend on settings: those that cannot be parsed are ignored.

    Args:
        root: The log root, or any other directory, which has no settings.
        topic: The topic.
    """
    try:
        return ConfigFiles(root, topic).load().readable_decompressed_bytes
    except (InvalidConfigError, CorruptDataError, StorageError):
        return DEFAULT_MAX_DECOMPRESSED_BYTES
