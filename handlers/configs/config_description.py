"""Description of settings for DescribeConfigs: value, source, and synonyms.

The synonyms of a setting are its values in all layers, the effective one first. The sources are
DescribeConfigsResponse.ConfigSource. Source: apache/kafka core/.../server/ConfigHelper.scala.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import dropwhile
from typing import NamedTuple

from ...cluster.client_metrics_config import DEFAULTS, INTERVAL
from ...cluster.security.security_config import is_of_a_listener
from ...groups.dynamic_group_config import DynamicGroupConfig
from ...protocol.config_key import ConfigKey, ConfigType
from ...storage.log_config import LogConfig
from ..ports.server_config import ServerConfig, server_key, server_keys, synonyms_of

TOPIC_CONFIG = 1
DYNAMIC_BROKER_CONFIG = 2
DYNAMIC_DEFAULT_BROKER_CONFIG = 3
STATIC_BROKER_CONFIG = 4
DEFAULT_CONFIG = 5
DYNAMIC_BROKER_LOGGER_CONFIG = 6
CLIENT_METRICS_CONFIG = 7
GROUP_CONFIG = 8
CLIENT_METRICS_TEXT = "Setting of a client metrics subscription (KIP-714)."
UNTYPED = ConfigKey(type=ConfigType.UNKNOWN, default=None, documentation="")


class Synonym(NamedTuple):
    """Value of a setting in one layer; `value` None: it is a secret."""

    name: str
    value: str | None
    source: int


class DescribedConfig(NamedTuple):
    """Description of one setting. `value` None: a synonym has the value, or it is a secret."""

    key: ConfigKey
    value: str | None
    source: int
    is_read_only: bool
    synonyms: list[Synonym]


def describe_topic(overrides: Mapping[str, str], server: ServerConfig) -> list[DescribedConfig]:
    """Describe all settings of a topic on a node with the settings `server`."""
    config = server.topic_config(overrides).to_kafka()
    described = []
    for name, key in LogConfig.keys().items():
        synonyms = _broker_synonyms(key.broker_names, server) if key.broker_names else []
        if name in overrides:
            synonyms.insert(0, Synonym(name, config[name], TOPIC_CONFIG))
        described.append(DescribedConfig(key, config[name], _source(synonyms), False, synonyms))
    return described


def describe_broker(server: ServerConfig) -> list[DescribedConfig]:
    """Describe all settings of a node, of single listeners those that are given."""
    layers = (server.static, server.dynamic_default, server.dynamic_broker)
    of_listeners = {name for layer in layers for name in layer if is_of_a_listener(name)}
    described = []
    for name in [*server_keys(), *sorted(of_listeners)]:
        key = server_key(name)
        names = synonyms_of(name)
        synonyms = _broker_synonyms(names[names.index(name) :], server)
        described.append(
            DescribedConfig(
                key, server.value_of(name), _source(synonyms), not key.is_dynamic, synonyms
            )
        )
    return described


def describe_broker_default(server: ServerConfig) -> list[DescribedConfig]:
    """Describe only the settings that were set for all nodes at run time."""
    described = []
    for name, value in sorted(server.dynamic_default.items()):
        synonym = Synonym(name, value, DYNAMIC_DEFAULT_BROKER_CONFIG)
        described.append(DescribedConfig(server_key(name), value, synonym.source, False, [synonym]))
    return described


def describe_group(overrides: Mapping[str, str]) -> list[DescribedConfig]:
    """Describe all settings of a group."""
    values = DynamicGroupConfig.from_kafka(overrides).to_kafka()
    described = []
    for name, key in DynamicGroupConfig.keys().items():
        source = GROUP_CONFIG if name in overrides else DEFAULT_CONFIG
        synonyms = [Synonym(name, values[name], source)]
        described.append(DescribedConfig(key, values[name], source, False, synonyms))
    return described


def describe_client_metrics(overrides: Mapping[str, str]) -> list[DescribedConfig]:
    """Describe all settings of a client metrics subscription."""
    described = []
    for name, default in DEFAULTS.items():
        kind = ConfigType.INT if name == INTERVAL else ConfigType.LIST
        key = ConfigKey(name=name, type=kind, default=default, documentation=CLIENT_METRICS_TEXT)
        synonyms = []
        if name in overrides:
            synonyms = [Synonym(name, overrides[name], CLIENT_METRICS_CONFIG)]
        source = _source(synonyms)
        value = overrides.get(name, default)
        described.append(DescribedConfig(key, value, source, False, synonyms))
    return described


def describe_loggers(levels: Mapping[str, str]) -> list[DescribedConfig]:
    """Describe each logger with its level."""
    return [
        DescribedConfig(replace(UNTYPED, name=name), level, DYNAMIC_BROKER_LOGGER_CONFIG, False, [])
        for name, level in levels.items()
    ]


def _broker_synonyms(names: tuple[str, ...], server: ServerConfig) -> list[Synonym]:
    """Values of `names` in all layers, beginning with the first of the names: a setting of one
    listener goes before that of all listeners, even of a higher layer.
    """
    keys = {name: server_key(name) for name in names}
    defaults = {
        name: ConfigKey.format(keys[name].default)
        for name in names
        if keys[name].default is not None
    }
    layers = (
        (server.dynamic_broker, DYNAMIC_BROKER_CONFIG),
        (server.dynamic_default, DYNAMIC_DEFAULT_BROKER_CONFIG),
        (server.static, STATIC_BROKER_CONFIG),
        (defaults, DEFAULT_CONFIG),
    )
    found = [
        Synonym(name, None if keys[name].is_sensitive else layer[name], source)
        for layer, source in layers
        for name in names
        if name in layer
    ]
    if not is_of_a_listener(names[0]):
        return found
    return list(dropwhile(lambda each: each.name != names[0], found))


def _source(synonyms: list[Synonym]) -> int:
    return synonyms[0].source if synonyms else DEFAULT_CONFIG
