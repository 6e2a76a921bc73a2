"""Configuration of a node: three layers of settings by name, and their combination.

    static            what the cluster was started with (`bradbury up --config`)
    dynamic default   set for all nodes at run time (AlterConfigs, broker "")
    dynamic broker    set for this node at run time (AlterConfigs, broker "3")

A later layer overrides an earlier one. Synonyms of one setting have an order of precedence in all
layers (log.retention.ms, then log.retention.minutes, then log.retention.hours): only the first can
be changed at run time, so a dynamic layer overrides all synonyms. A setting of one listener
(`listener.name.client.max.connections`) overrides that of all, whichever layers the two are in.
Source: apache/kafka core/.../server/DynamicBrokerConfig.scala.

It joins the tables of five classes (brokers, listeners, groups, transactions, defaults of topics),
which are independent of each other. Immutable: a change makes another object.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from types import MappingProxyType
from typing import Any, Self

from ...cluster.broker_config import BrokerConfig
from ...cluster.quotas.connection_quotas import ConnectionLimits
from ...cluster.security.security_config import (
    OF_A_LISTENER,
    SecurityConfig,
    is_listener_limit,
    is_of_a_listener,
    listener_key,
    wider_names,
)
from ...groups.group_config import GroupCoordinatorConfig
from ...protocol.config_key import ConfigKey, keys_of
from ...protocol.errors import InvalidConfig
from ...protocol.security.gssapi import refuse_gssapi
from ...storage.log_config import LogConfig, broker_keys
from ...transactions.transaction_config import TransactionConfig

EMPTY: Mapping[str, str] = MappingProxyType({})


@cache
def server_keys() -> dict[str, ConfigKey]:
    """All settings of a broker, by name, in alphabetical order."""
    found = (
        BrokerConfig.keys()
        | SecurityConfig.keys()
        | GroupCoordinatorConfig.keys()
        | TransactionConfig.keys()
        | broker_keys()
    )
    return dict(sorted(found.items()))


def server_key(name: str) -> ConfigKey:
    """Setting of a broker, or of one of its listeners. Raises InvalidConfig: there is none."""
    if is_of_a_listener(name):
        if not is_listener_limit(name):
            return listener_key(name)
        (of_node,) = wider_names(name)
        return replace(server_keys()[of_node], name=name, default=None)
    if name not in server_keys():
        raise InvalidConfig(BrokerConfig.why_refused(name, server_keys()))
    return server_keys()[name]


def synonyms_of(name: str) -> tuple[str, ...]:
    """Names of the same setting, including `name`, in order of precedence."""
    if is_of_a_listener(name):
        return (name, *wider_names(name))
    return _broker_synonyms(name)


@cache
def _broker_synonyms(name: str) -> tuple[str, ...]:
    for key in LogConfig.keys().values():
        if name in key.broker_names:
            return key.broker_names
    return (name,)


def check_names(names: Iterable[str]) -> None:
    """Check that all names are settings of a broker. Raises InvalidConfig if one is not."""
    for name in names:
        if not is_of_a_listener(name):
            server_key(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """All settings of a node; made by from_kafka."""

    static: Mapping[str, str] = field(default_factory=lambda: EMPTY, repr=False)
    dynamic_default: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    dynamic_broker: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    broker: BrokerConfig = field(default_factory=BrokerConfig)
    security: SecurityConfig = field(default_factory=SecurityConfig, repr=False)
    groups: GroupCoordinatorConfig = field(default_factory=GroupCoordinatorConfig)
    transactions: TransactionConfig = field(default_factory=TransactionConfig)
    log_defaults: LogConfig = field(default_factory=LogConfig)
    listener_limits: Mapping[str, int] = field(default_factory=dict)
    """Limits of connections of single listeners, by the names of the settings."""

    @classmethod
    def from_kafka(
        cls,
        static: Mapping[str, Any],
        *,
        dynamic_default: Mapping[str, str] = EMPTY,
        dynamic_broker: Mapping[str, str] = EMPTY,
    ) -> Self:
        """Make it from settings by Kafka's names; static ones may be text or typed already.

        Raises:
            InvalidConfig: an unknown name, or a value that is not allowed. Nothing is ignored.
        """
        refuse_gssapi(static)
        layers = (
            {name: ConfigKey.format(value) for name, value in static.items()},
            dict(dynamic_default),
            dict(dynamic_broker),
        )
        values: dict[str, str] = {}
        for layer in layers:
            for name in layer:
                server_key(name).parse(layer[name])  # also those that a synonym overrides
            values |= layer
        limits = {
            name: server_key(name).parse(values.pop(name))
            for name in [*values]
            if is_listener_limit(name)
        }
        groups, rest = GroupCoordinatorConfig.split(values)
        transactions, rest = TransactionConfig.split(rest)
        security = {name: rest.pop(name) for name in [*rest] if _is_security(name)}
        topic_defaults = broker_keys()
        made = SecurityConfig.from_kafka(security)
        # Those set at run time may be of a listener that the cluster no longer has.
        made.check_listeners(layers[0])
        return cls(
            static=MappingProxyType(layers[0]),
            dynamic_default=MappingProxyType(layers[1]),
            dynamic_broker=MappingProxyType(layers[2]),
            broker=BrokerConfig.from_kafka(
                {name: value for name, value in rest.items() if name not in topic_defaults}
            ),
            security=made,
            groups=groups,
            transactions=transactions,
            log_defaults=LogConfig.from_broker(values),
            listener_limits=limits,
        )

    def with_dynamic(
        self, dynamic_default: Mapping[str, str], dynamic_broker: Mapping[str, str]
    ) -> Self:
        """Replace the dynamic layers above the same static layer. Raises InvalidConfig."""
        if dynamic_default == self.dynamic_default and dynamic_broker == self.dynamic_broker:
            return self
        return self.from_kafka(
            self.static, dynamic_default=dynamic_default, dynamic_broker=dynamic_broker
        )

    def value_of(self, name: str) -> str | None:
        """Text of the setting `name`; None for a secret, log.retention.ms given in hours, and a
        setting of a listener that is not given.
        """
        key = server_key(name)
        if key.is_sensitive:
            return None
        for layer in (self.dynamic_broker, self.dynamic_default, self.static):
            if name in layer:
                return key.format(key.parse(layer[name]))
        return None if key.default is None else ConfigKey.format(key.default)

    def connection_limits(self, listener: str) -> ConnectionLimits:
        """Limits of connections for a listener: the node's, and its own."""
        prefix, own, node = f"{OF_A_LISTENER}{listener.lower()}.", self.listener_limits, self.broker
        rate = node.max_connection_creation_rate
        return ConnectionLimits(
            of_node=node.max_connections,
            rate_of_node=rate,
            of_listener=own.get(f"{prefix}max.connections", node.max_connections),
            rate_of_listener=own.get(f"{prefix}max.connection.creation.rate", rate),
        )

    def metrics_host(self, host: str) -> str:
        """Address of the metrics endpoint, of a node that binds `host`.

        Metrics answer whoever asks. Where every listener authenticates, they are on loopback,
        unless a port was given for them.
        """
        layers = (self.static, self.dynamic_default, self.dynamic_broker)
        is_given = any("bradbury.metrics.port" in layer for layer in layers)
        if is_given or not all(each.authenticates for each in self.security.listener_configs()):
            return host
        return "127.0.0.1"

    def topic_config(self, overrides: Mapping[str, str]) -> LogConfig:
        """Settings of a topic. Raises InvalidConfig."""
        return LogConfig.from_kafka(overrides, defaults=self.log_defaults)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the layers, as mapping proxies do not pickle; the rest is made from them."""
        layers = (dict(self.static), dict(self.dynamic_default), dict(self.dynamic_broker))
        return _rebuild, layers


def _is_security(name: str) -> bool:
    return is_of_a_listener(name) or name in keys_of(SecurityConfig)


def _rebuild(
    static: dict[str, str], dynamic_default: dict[str, str], dynamic_broker: dict[str, str]
) -> ServerConfig:
    return ServerConfig.from_kafka(
        static, dynamic_default=dynamic_default, dynamic_broker=dynamic_broker
    )
