"""docs/configs.md, made from the tables of settings: `make generate`. A dev tool.

python -m bradbury.handlers.configs.config_document        writes the file
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from ...cluster.broker_config import BrokerConfig
from ...cluster.security.security_config import SecurityConfig
from ...groups.dynamic_group_config import DynamicGroupConfig
from ...groups.group_config import GroupCoordinatorConfig
from ...protocol.config_key import INT_MAX, LONG_MAX, ConfigKey
from ...storage.log_config import LogConfig
from ...transactions.transaction_config import TransactionConfig

PATH = Path(__file__).resolve().parents[2] / "docs" / "configs.md"

INTRODUCTION = """\
# Settings

Names, types and defaults are Apache Kafka 4.1's; names that begin with `bradbury.` are ours. A name
or value that would not be acted on is refused with `INVALID_CONFIG` and the reason, never stored
and ignored; a broker's value that is changed while it runs with `INVALID_REQUEST`, as in Kafka.
This file is made from the code by `make generate`.

## Where a value comes from

A topic's setting is the first of these that is there:

1. the topic's own: `bradbury topics create --config`, `bradbury topics alter`, or any Kafka client;
2. set for one broker while it runs (AlterConfigs, broker `3`);
3. set for all brokers while they run (AlterConfigs, broker without a name);
4. what the cluster was started with: `bradbury up --config name=value`, or
   `bradbury.local(config=...)`;
5. the default below.

`bradbury topics configs TOPIC --all` shows each value and where it is from. What is changed while
brokers run is kept in the cluster's metadata and survives every restart. A broker's setting without
"yes" under "at run time" is given when the cluster is started and answered `INVALID_REQUEST`
otherwise.
"""

TOPICS = """\
## Topics

The last column names the brokers' setting that gives the default; all of these can be changed at
run time. `log.retention.minutes`, `log.retention.hours`, `log.roll.hours` and
`log.roll.jitter.hours` do the same at the start, in their units, where the one in milliseconds is
not given.
"""

BROKERS = """\
## Brokers

Besides these, every setting of the last column above.
"""

LISTENERS = """\
## Listeners

Given when the cluster is started. Those of TLS and SASL and `connections.max.reauth.ms` can also be
those of one listener, `listener.name.client.ssl.client.auth` of listener CLIENT, and only so
`listener.name.client.plain.sasl.jaas.config` and those of the other mechanisms;
`listener.name.client.plain.connections.max.reauth.ms`, of one mechanism, goes before that of its
listener. Also of one listener, and changed while brokers run, of one or of all:
`listener.name.client.max.connections`, `listener.name.client.max.connection.creation.rate`.
Passwords and keys are never shown, and can be references: `${file:/path:key}`,
`${dir:/path:file}`, `${env:NAME}`.
"""

GROUPS = """\
## Group coordinators

Given when the cluster is started. `bradbury.local()`, which is for tests and notebooks, sets
`group.initial.rebalance.delay.ms` to 0 unless its config says otherwise.
"""

TRANSACTIONS = """\
## Transaction coordinators

Coordinators, and the leaders that ask them whether a partition is in a transaction.
"""

SINGLE_GROUPS = """\
## Single groups

Set for one group while the cluster runs (`kafka-configs --entity-type groups`). They are for the
protocols of KIP-848, KIP-932 and KIP-1071, which are not served yet: they are kept and shown, and a
classic group does not look at them, here as in Kafka.
"""

REFUSED = """\
## Known to Kafka, refused here

A star replaces the rest of a name.
"""


def document() -> str:
    """Text of the whole file."""
    parts = [
        INTRODUCTION,
        TOPICS,
        _table(
            ("name", "type", "default", "allowed", "meaning", "broker's setting"),
            (
                (*_facts(name, key), f"`{key.broker_names[0]}`" if key.broker_names else "none")
                for name, key in sorted(LogConfig.keys().items())
            ),
        ),
        BROKERS,
        _table(
            ("name", "type", "default", "allowed", "meaning", "at run time"),
            (
                (*_facts(name, key), "yes" if key.is_dynamic else "")
                for name, key in sorted(BrokerConfig.keys().items())
            ),
        ),
        LISTENERS,
        _table(
            ("name", "type", "default", "allowed", "meaning"),
            (_facts(name, key) for name, key in sorted(SecurityConfig.keys().items())),
        ),
        GROUPS,
        _table(
            ("name", "type", "default", "allowed", "meaning"),
            (_facts(name, key) for name, key in sorted(GroupCoordinatorConfig.keys().items())),
        ),
        TRANSACTIONS,
        _table(
            ("name", "type", "default", "allowed", "meaning", "at run time"),
            (
                (*_facts(name, key), "yes" if key.is_dynamic else "")
                for name, key in sorted(TransactionConfig.keys().items())
            ),
        ),
        SINGLE_GROUPS,
        _table(
            ("name", "type", "default", "allowed", "meaning"),
            (_facts(name, key) for name, key in sorted(DynamicGroupConfig.keys().items())),
        ),
        REFUSED,
        _refused("topic", LogConfig.refused),
        _refused("broker", BrokerConfig.refused),
    ]
    return "\n".join(parts)


def _facts(name: str, key: ConfigKey) -> tuple[str, ...]:
    return (
        f"`{name}`",
        key.type.name.lower(),
        _default(key),
        key.allowed,
        key.documentation.replace("|", "\\|"),
    )


def _default(key: ConfigKey) -> str:
    if key.default in (INT_MAX, LONG_MAX) and not isinstance(key.default, bool):
        return "no limit"
    if isinstance(key.default, float) and key.default > LONG_MAX:
        return "no limit"
    text = key.format(key.default)
    return f"`{text}`" if text else ""


def _refused(kind: str, refused: Mapping[str, str]) -> str:
    return _table(
        (kind, "why"), ((f"`{name}`", reason) for name, reason in sorted(refused.items()))
    )


def _table(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [columns, ("---",) * len(columns), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    PATH.write_text(document())
