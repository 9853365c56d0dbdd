"""Settings of topics and of the broker: DescribeConfigs, AlterConfigs, ListConfigResources.

A topic's settings are changed as `streamlog topics alter` does. Those of the broker are the root's:
they can be described, and changed in its `server.properties` only.

Source: kafka.server.ConfigHelper, org.apache.kafka.controller.ConfigurationControlManager.
"""

from collections.abc import Collection, Mapping
from enum import IntEnum
from functools import partial
from typing import Any, Final

from streamlog.config.group_config import GroupConfig
from streamlog.config.log_config import LogConfig
from streamlog.config.server_config import ConfigSource, root_settings
from streamlog.config.settings import (
    BOOLEAN,
    DOUBLE,
    INT,
    LIST,
    LONG,
    Setting,
    settings_of,
    text_of,
)
from streamlog.errors import (
    InvalidConfigError,
    InvalidRequestError,
    PolicyViolationError,
    StreamLogError,
    UnknownTopicError,
)
from streamlog.gateway.broker import Broker
from streamlog.gateway.error_codes import ErrorCode, code_of
from streamlog.gateway.groups.coordinator import GroupCoordinator
from streamlog.gateway.groups.settings import GroupSettings
from streamlog.gateway.request import Request
from streamlog.partition.topic_config import read_topic_properties
from streamlog.topic import check_topic_name

__all__ = ["HANDLERS", "topic_entries"]


class _ResourceType(IntEnum):
    """What settings belong to (org.apache.kafka.common.config.ConfigResource.Type)."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class _Source(IntEnum):
    """Where a value comes from (DescribeConfigsResponse.ConfigSource)."""

    TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5
    GROUP = 8


class _Operation(IntEnum):
    """What IncrementalAlterConfigs does to a value (AlterConfigOp.OpType)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


_SOURCES: Final = {
    ConfigSource.TOPIC: _Source.TOPIC,
    ConfigSource.SERVER: _Source.STATIC_BROKER,
    ConfigSource.DEFAULT: _Source.DEFAULT,
}
_KINDS: Final = {BOOLEAN.name: 1, INT.name: 3, LONG.name: 5, DOUBLE.name: 6, LIST.name: 7}
_STRING: Final = 2
# The settings of a subscription to clients' metrics, with Kafka's defaults (ClientMetricsConfigs).
_CLIENT_METRICS: Final = (("interval.ms", "300000", 3), ("match", "", 7), ("metrics", "", 7))


# ---- describe -----------------------------------------------------------------------------------
async def describe_configs(broker: Broker, request: Request) -> dict[str, Any]:
    """Describe the settings in force, each with its source and what it overrides."""
    results = []
    for each in request.values["resources"]:
        kind, name = each["resourceType"], each["resourceName"]
        answer: dict[str, Any] = {"errorCode": 0, "errorMessage": None, "configs": []}
        try:
            if kind == _ResourceType.GROUP:
                entries = await _group_entries(broker, name)
            else:
                entries = await broker.run(_entries, broker, kind, name)
        except StreamLogError as error:
            answer |= {"errorCode": int(code_of(error)), "errorMessage": str(error)}
            entries = []
        keys = each["configurationKeys"]
        answer["configs"] = [
            _shown(entry, request) for entry in entries if keys is None or entry["name"] in keys
        ]
        results.append({"resourceType": kind, "resourceName": name} | answer)
    return {"throttleTimeMs": 0, "results": results}


def _shown(entry: dict[str, Any], request: Request) -> dict[str, Any]:
    hidden: dict[str, Any] = {}
    if not request.values["includeSynonyms"]:
        hidden["synonyms"] = []
    if not request.values["includeDocumentation"]:
        hidden["documentation"] = None
    return entry | hidden


def _entries(broker: Broker, kind: int, name: str) -> list[dict[str, Any]]:
    if kind == _ResourceType.TOPIC:
        if broker.catalog.topic(check_topic_name(name)) is None:
            raise UnknownTopicError("no such topic", got=repr(name))
        return topic_entries(broker, read_topic_properties(broker.manager.log_root, name))
    if kind == _ResourceType.BROKER:
        if name not in ("", str(broker.node_id)):
            raise InvalidRequestError("no such broker", got=name, expected=broker.node_id)
        return _broker_entries(broker) if name else []
    if kind == _ResourceType.BROKER_LOGGER:
        if name != str(broker.node_id):
            raise InvalidRequestError("no such broker", got=name, expected=broker.node_id)
        return []
    if kind == _ResourceType.CLIENT_METRICS:
        return [_unchanged(*each) for each in _CLIENT_METRICS]
    raise InvalidRequestError("unknown kind of resource", got=kind)


def topic_entries(broker: Broker, own: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the settings that are in force for a topic with these of its own."""
    config, declared = broker.config, settings_of(LogConfig)
    entries = []
    for key, value, source in config.describe(own):
        setting = declared[key]
        synonyms = [(key, value, _Source.TOPIC)] if source is ConfigSource.TOPIC else []
        server_key = setting.broker[0].key if setting.broker else key
        if key in config.topic_defaults:
            synonyms.append((server_key, config.topic_defaults[key], _Source.STATIC_BROKER))
        if len(setting.broker) <= 1:  # of a broker's several keys, hours have the default
            synonyms.append((server_key, text_of(setting.default), _Source.DEFAULT))
        entries.append(_entry(setting, value, _SOURCES[source], synonyms))
    return entries


async def _group_entries(broker: Broker, group_id: str) -> list[dict[str, Any]]:
    coordinator = await _of_group(broker, group_id)
    own, declared = coordinator.settings.own(group_id), settings_of(GroupConfig)
    entries = []
    for key, value in sorted(coordinator.settings.of(group_id).to_properties().items()):
        source = _Source.GROUP if key in own else _Source.DEFAULT
        synonyms = [(key, value, _Source.GROUP)] if key in own else []
        synonyms.append((key, text_of(declared[key].default), _Source.DEFAULT))
        entries.append(_entry(declared[key], value, source, synonyms))
    return entries


async def _of_group(broker: Broker, group_id: str) -> GroupCoordinator:
    """Return the coordinator of groups, once it knows their settings."""
    if not group_id:
        raise InvalidRequestError("a group needs a name", got=repr(group_id))
    coordinator = broker.coordinator(GroupCoordinator)
    await coordinator.ready()
    return coordinator


def _broker_entries(broker: Broker) -> list[dict[str, Any]]:
    config, entries = broker.config, []
    for setting in root_settings().values():
        value = config.value(setting.key)
        source = _Source.DEFAULT if value == setting.default else _Source.STATIC_BROKER
        entries.append(_broker_entry(setting, setting.key, text_of(value), source))
    for setting in settings_of(LogConfig).values():
        if setting.broker:
            given = config.topic_defaults.get(setting.key)
            source = _Source.DEFAULT if given is None else _Source.STATIC_BROKER
            value = text_of(setting.default) if given is None else given
            entries.append(_broker_entry(setting, setting.broker[0].key, value, source))
    fixed = {
        "advertised.listeners": f"PLAINTEXT://{broker.address}",
        "broker.id": str(broker.node_id),
        "listeners": f"PLAINTEXT://{broker.settings.listen}",
        "log.dirs": broker.manager.root,
        "node.id": str(broker.node_id),
        "process.roles": "broker,controller",
    }
    for key, value in fixed.items():
        entries.append(_fixed(key, value))
    return sorted(entries, key=lambda each: str(each["name"]))


def _broker_entry(setting: Setting, key: str, value: str, source: _Source) -> dict[str, Any]:
    synonyms = [(key, value, source)]
    if source is not _Source.DEFAULT:
        synonyms.append((key, text_of(setting.default), _Source.DEFAULT))
    return _entry(setting, value, source, synonyms) | {"name": key, "readOnly": True}


def _fixed(key: str, value: str) -> dict[str, Any]:
    source = int(_Source.STATIC_BROKER)
    return {
        "name": key,
        "value": value,
        "readOnly": True,
        "isDefault": False,
        "configSource": source,
        "isSensitive": False,
        "synonyms": [{"name": key, "value": value, "source": source}],
        "configType": _STRING,
        "documentation": None,
    }


def _unchanged(key: str, value: str, kind: int) -> dict[str, Any]:
    """Return a setting that clients may not change, so that it has its default."""
    return {
        "name": key,
        "value": value,
        "readOnly": False,
        "isDefault": True,
        "configSource": int(_Source.DEFAULT),
        "isSensitive": False,
        "synonyms": [],
        "configType": kind,
        "documentation": None,
    }


def _entry(
    setting: Setting, value: str, source: _Source, synonyms: list[tuple[str, str, _Source]]
) -> dict[str, Any]:
    return {
        "name": setting.key,
        "value": value,
        "readOnly": False,
        "isDefault": source is _Source.DEFAULT,
        "configSource": int(source),
        "isSensitive": False,
        "synonyms": [
            {"name": key, "value": text, "source": int(origin)} for key, text, origin in synonyms
        ],
        "configType": _KINDS.get(setting.kind.name, _STRING),
        "documentation": setting.doc,
    }


# ---- alter --------------------------------------------------------------------------------------
async def incremental_alter_configs(broker: Broker, request: Request) -> dict[str, Any]:
    """Set, delete, append to and subtract from settings (KIP-339)."""
    return await _altered(broker, request, _change_some)


async def alter_configs(broker: Broker, request: Request) -> dict[str, Any]:
    """Replace all of a topic's own settings by the given ones."""
    return await _altered(broker, request, _change_all)


async def _altered(broker: Broker, request: Request, change: Any) -> dict[str, Any]:
    responses = []
    for each in request.values["resources"]:
        kind, name = each["resourceType"], each["resourceName"]
        answer: dict[str, Any] = {"errorCode": 0, "errorMessage": None}
        try:
            only_check = request.values["validateOnly"]
            alter: Any = _alter
            if kind == _ResourceType.GROUP:
                coordinator = await _of_group(broker, name)
                alter = partial(_alter_group, coordinator.settings)
            await broker.run(alter, broker, each, change, only_check=only_check)
        except StreamLogError as error:
            answer = {"errorCode": int(code_of(error)), "errorMessage": str(error)}
        responses.append({"resourceType": kind, "resourceName": name} | answer)
    return {"throttleTimeMs": 0, "responses": responses}


def _alter(broker: Broker, resource: dict[str, Any], change: Any, *, only_check: bool) -> None:
    kind, name = resource["resourceType"], resource["resourceName"]
    broker.check_writable()
    if kind != _ResourceType.TOPIC:
        raise PolicyViolationError(
            "only the settings of topics and groups can be changed by clients",
            hint=f"change {broker.manager.log_root.server_properties}",
        )
    if broker.catalog.topic(name) is None:
        raise UnknownTopicError("no such topic", got=repr(name))
    own = read_topic_properties(broker.manager.log_root, name)
    wanted = change(own, resource["configs"], broker.config.log_config(own).to_properties())
    broker.config.log_config(wanted)
    if not only_check:
        changed = {key: value for key, value in wanted.items() if own.get(key) != value}
        gone = [key for key in own if key not in wanted]
        if changed or gone:
            broker.manager.alter_topic(name, configs=changed, delete_configs=gone)
            for each in broker.partitions:
                if each.name.topic == name:
                    each.read_settings_again()


def _alter_group(
    settings: GroupSettings,
    broker: Broker,
    resource: dict[str, Any],
    change: Any,
    *,
    only_check: bool,
) -> None:
    broker.check_writable()
    group_id = resource["resourceName"]
    wanted = change(settings.own(group_id), resource["configs"], {})
    settings.replace(group_id, wanted, only_check=only_check)


def _change_all(
    own: Mapping[str, str], configs: Collection[dict[str, Any]], in_force: Mapping[str, str]
) -> dict[str, str]:
    return {each["name"]: _given(each) for each in configs}


def _change_some(
    own: Mapping[str, str], configs: Collection[dict[str, Any]], in_force: Mapping[str, str]
) -> dict[str, str]:
    wanted = dict(own)
    names = [each["name"] for each in configs]
    if len(set(names)) < len(names):
        raise InvalidRequestError("a setting is given twice", got=", ".join(sorted(names)))
    for each in configs:
        key, operation = each["name"], each["configOperation"]
        if operation == _Operation.DELETE:
            wanted.pop(key, None)
        elif operation == _Operation.SET:
            wanted[key] = _given(each)
        elif operation in (_Operation.APPEND, _Operation.SUBTRACT):
            wanted[key] = _edited_list(each, in_force.get(key, ""))
        else:
            raise InvalidRequestError("unknown operation", got=operation, expected="0 to 3")
    return wanted


def _given(config: dict[str, Any]) -> str:
    if config["value"] is None:
        raise InvalidConfigError(f"{config['name']}: null is no value for a setting")
    return str(config["value"])


def _edited_list(config: dict[str, Any], present: str) -> str:
    setting = settings_of(LogConfig).get(config["name"])
    if setting is None or setting.kind.name != LIST.name:
        raise InvalidConfigError(
            f"{config['name']} is no list: nothing can be appended or subtracted"
        )
    values = [each for each in present.split(",") if each]
    named = [each.strip() for each in _given(config).split(",")]
    if config["configOperation"] == _Operation.SUBTRACT:
        return ",".join(each for each in values if each not in named)
    return ",".join([*values, *(each for each in named if each not in values)])


async def list_config_resources(broker: Broker, request: Request) -> dict[str, Any]:
    """List what has settings (KIP-1142); version 0 asks for client metrics: there are none."""
    wanted = request.values["resourceTypes"]
    if request.version == 0:
        wanted = [_ResourceType.CLIENT_METRICS]
    if not set(wanted) <= set(_ResourceType):
        return {"errorCode": int(ErrorCode.UNSUPPORTED_VERSION)}
    coordinator = broker.coordinator(GroupCoordinator)
    await coordinator.ready()
    named = {
        _ResourceType.GROUP: coordinator.settings.groups(),
        _ResourceType.TOPIC: list(broker.catalog.topics()),
        _ResourceType.BROKER: [str(broker.node_id)],
        _ResourceType.BROKER_LOGGER: [str(broker.node_id)],
    }
    resources = [
        {"resourceName": name, "resourceType": int(kind)}
        for kind in wanted or list(named)
        for name in named.get(kind, ())
    ]
    return {"throttleTimeMs": 0, "errorCode": 0, "configResources": resources}


HANDLERS: Final = {
    "AlterConfigs": alter_configs,
    "DescribeConfigs": describe_configs,
    "IncrementalAlterConfigs": incremental_alter_configs,
    "ListConfigResources": list_config_resources,
}
