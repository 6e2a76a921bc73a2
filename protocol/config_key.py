"""Settings with Kafka's names: declarations of a class of settings, and text <-> values.

A class of settings (LogConfig, BrokerConfig, GroupCoordinatorConfig) is a frozen dataclass derived
from Config. Each field is made by one of the functions below, whose arguments are all facts about a
setting: type, default, bounds, the sentence that DescribeConfigs returns. So there is one table,
and a new setting is one new field. Field `segment_bytes` is Kafka's `segment.bytes`.

Invariants: every Config object is valid; a name or value without effect here is refused with
InvalidConfig, never stored and ignored.
Source: apache/kafka clients/.../common/config/ConfigDef.java.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from enum import IntEnum
from typing import Any, ClassVar, Final, Self

from .errors import InvalidConfig

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
WHERE_SETTINGS_ARE: Final = "docs/configs.md lists those there are"
MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS


class ConfigType(IntEnum):
    """DescribeConfigsResponse.ConfigType on the wire."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9


_HIGHEST: Final = {ConfigType.INT: INT_MAX, ConfigType.LONG: LONG_MAX}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigKey:
    """One setting.

    default: None where Kafka has none, because a synonym has the default.
    choices: the words that a string may be, or a list may contain; an empty list: may_be_empty.
    only: the one allowed value, which is the actual behaviour, with why_only; None: any value.
    is_dynamic: can be changed while brokers run, and takes effect then.
    broker_names: of a topic's setting, the brokers' settings with its default, by precedence.
    """

    name: str = ""
    type: ConfigType
    default: Any
    documentation: str
    lowest: float | None = None
    highest: float | None = None
    choices: tuple[str, ...] = ()
    may_be_empty: bool = False
    only: Any = None
    why_only: str = ""
    is_dynamic: bool = False
    broker_names: tuple[str, ...] = ()

    def parse(self, given: object) -> Any:
        """Parse a text; a value of the setting's type is converted to text first.

        Raises:
            InvalidConfig: wrong type, or not allowed.
        """
        text = self.format(given).strip() if given is not None else ""
        value: Any = text
        try:
            if self.type is ConfigType.BOOLEAN:
                value = {"true": True, "false": False}[text.lower()]
            elif self.type in (ConfigType.INT, ConfigType.LONG):
                value = int(text)
            elif self.type is ConfigType.DOUBLE:
                value = float(text)
            elif self.type is ConfigType.LIST:
                value = ",".join(split_list(text))
        except (ValueError, KeyError):
            wanted = _WANTED[self.type]
            raise InvalidConfig(f"{self.name} must be {wanted}, got {text!r}") from None
        self.check(value)
        return value

    def check(self, value: Any) -> None:
        """Check a value of the right type. Raises InvalidConfig: it is not allowed."""
        if self.only is not None and value != self.only:
            raise InvalidConfig(
                f"{self.name} is not available: {self.why_only}; it can only be "
                f"{self.format(self.only)}"
            )
        # "not >=" refuses not-a-number, too.
        if self.lowest is not None and not value >= self.lowest:
            raise InvalidConfig(f"{self.name} must be at least {self.lowest}, got {value}")
        if self.highest is not None and value > self.highest:
            raise InvalidConfig(f"{self.name} must be at most {self.highest}, got {value}")
        if not self.choices:
            return
        if self.type is ConfigType.LIST:
            words = split_list(value)
            if not (words or self.may_be_empty) or not set(words) <= set(self.choices):
                allowed = " and ".join(self.choices)
                raise InvalidConfig(f"{self.name} is a list of {allowed}, got {value!r}")
        elif value not in self.choices:
            allowed = ", ".join(self.choices)
            raise InvalidConfig(f"{self.name} must be one of {allowed}, got {value!r}")

    @staticmethod
    def format(value: object) -> str:
        """Text for `value` on the wire."""
        return str(value).lower() if isinstance(value, bool) else str(value)

    @property
    def is_sensitive(self) -> bool:
        """Whether its value must never be shown."""
        return self.type is ConfigType.PASSWORD

    @property
    def allowed(self) -> str:
        """Allowed values, as text for users."""
        if self.only is not None:
            return f"only `{self.format(self.only)}`: {self.why_only}"
        if self.choices:
            return ", ".join(self.choices) + (", or nothing" if self.may_be_empty else "")
        if self.lowest is None:
            return ""
        if self.highest is None:
            return f"from {self.lowest}"
        if self.type not in _HIGHEST:
            return f"{self.lowest} to {self.highest}"
        if self.lowest <= -LONG_MAX:
            return "any"
        unbounded = self.highest == _HIGHEST[self.type]
        return f"from {self.lowest}" if unbounded else f"{self.lowest} to {self.highest}"


_WANTED: Final = {
    ConfigType.BOOLEAN: "true or false",
    ConfigType.INT: "an integer",
    ConfigType.LONG: "an integer",
    ConfigType.DOUBLE: "a number",
}


def _field(default: Any, **facts: Any) -> Any:
    return field(default=default, metadata={"key": ConfigKey(default=default, **facts)})


def boolean(default: bool, documentation: str, *, dynamic: bool = False, broker: str = "") -> Any:
    """Declare a field that is true or false. `broker`: see `integer`."""
    return _field(
        default,
        type=ConfigType.BOOLEAN,
        documentation=documentation,
        is_dynamic=dynamic,
        broker_names=tuple(broker.split()),
    )


def integer(
    default: int,
    lowest: int,
    documentation: str,
    *,
    highest: int = INT_MAX,
    dynamic: bool = False,
    broker: str = "",
) -> Any:
    """Declare a field of 32 bits. `broker`: see ConfigKey.broker_names, separated by blanks."""
    return _field(
        default,
        type=ConfigType.INT,
        lowest=lowest,
        highest=highest,
        documentation=documentation,
        is_dynamic=dynamic,
        broker_names=tuple(broker.split()),
    )


def long(
    default: int, lowest: int, documentation: str, *, dynamic: bool = False, broker: str = ""
) -> Any:
    """Declare a field of 64 bits."""
    return _field(
        default,
        type=ConfigType.LONG,
        lowest=lowest,
        highest=LONG_MAX,
        documentation=documentation,
        is_dynamic=dynamic,
        broker_names=tuple(broker.split()),
    )


def ratio(default: float, documentation: str, *, dynamic: bool = False, broker: str = "") -> Any:
    """Declare a field from 0 to 1."""
    return _field(
        default,
        type=ConfigType.DOUBLE,
        lowest=0.0,
        highest=1.0,
        documentation=documentation,
        is_dynamic=dynamic,
        broker_names=tuple(broker.split()),
    )


def double(default: float, lowest: float, documentation: str, *, dynamic: bool = False) -> Any:
    """Declare a field that is a number of any size."""
    return _field(
        default,
        type=ConfigType.DOUBLE,
        lowest=lowest,
        documentation=documentation,
        is_dynamic=dynamic,
    )


def string(
    default: str,
    documentation: str,
    *,
    choices: tuple[str, ...] = (),
    dynamic: bool = False,
    broker: str = "",
) -> Any:
    """Declare a field of text; one of `choices` if there are any."""
    return _field(
        default,
        type=ConfigType.STRING,
        choices=choices,
        documentation=documentation,
        is_dynamic=dynamic,
        broker_names=tuple(broker.split()),
    )


def password(documentation: str) -> Any:
    """Declare a field of text that is never shown."""
    return _field("", type=ConfigType.PASSWORD, documentation=documentation)


def as_it_is(default: bool | int, documentation: str, why_only: str, *, broker: str = "") -> Any:
    """Declare a field whose one allowed value is the actual behaviour; others are refused."""
    return _field(
        default,
        type=ConfigType.BOOLEAN if isinstance(default, bool) else ConfigType.LONG,
        documentation=documentation,
        only=default,
        why_only=why_only,
        broker_names=tuple(broker.split()),
    )


def word_list(
    default: str,
    documentation: str,
    *,
    choices: tuple[str, ...] = (),
    may_be_empty: bool = False,
    dynamic: bool = False,
    broker: str = "",
) -> Any:
    """Declare a field of words separated by commas; kept as one text without blanks."""
    return _field(
        default,
        type=ConfigType.LIST,
        choices=choices,
        may_be_empty=may_be_empty,
        documentation=documentation,
        is_dynamic=dynamic,
        broker_names=tuple(broker.split()),
    )


def split_list(text: str) -> list[str]:
    """Words of "a, b,a": a and b, each once."""
    words = (word.strip() for word in text.split(","))
    return list(dict.fromkeys(word for word in words if word))


class Config:
    """Base of the classes of settings. `kind` names them in errors.

    refused: names of settings that Kafka has and this broker does not act on, each with the reason;
    a name may end with a star.
    """

    __slots__ = ()
    kind: ClassVar[str]
    refused: ClassVar[Mapping[str, str]] = {}

    def __post_init__(self) -> None:
        for key, field_name in keys_of(type(self)).values():
            key.check(getattr(self, field_name))
        self.check_together()

    def check_together(self) -> None:
        """Check that values are consistent. Raises InvalidConfig."""

    @classmethod
    def keys(cls) -> dict[str, ConfigKey]:
        """Settings by Kafka's name, in the order of the class."""
        return {name: key for name, (key, _) in keys_of(cls).items()}

    @classmethod
    def from_kafka(cls, values: Mapping[str, Any], *, defaults: Self | None = None) -> Self:
        """Parse {"segment.bytes": "4096"}; values may be text or typed already.

        Args:
            values: by Kafka's names.
            defaults: values of all other settings; None: the defaults of the class.

        Raises:
            InvalidConfig: unknown name, wrong type, out of bounds, or not available here.
        """
        arguments = cls.parse_all(values)
        if defaults is not None:
            config: Self = replace(defaults, **arguments)  # type: ignore[type-var]
            return config
        return cls(**arguments)

    @classmethod
    def parse_all(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Parse values; returns them by field name. Raises InvalidConfig, see from_kafka."""
        known = keys_of(cls)
        arguments: dict[str, Any] = {}
        for name, given in values.items():
            if name not in known:
                raise InvalidConfig(cls.why_refused(name))
            if given is None:
                raise InvalidConfig(f"{name} needs a value")
            key, field_name = known[name]
            arguments[field_name] = key.parse(given)
        return arguments

    @classmethod
    def split(cls, values: Mapping[str, Any]) -> tuple[Self, dict[str, Any]]:
        """(the settings of this class, the rest), from settings of several classes.

        Raises:
            InvalidConfig: as from_kafka; but unknown names are returned in the rest.
        """
        known = cls.keys()
        ours = {name: value for name, value in values.items() if name in known}
        rest = {name: value for name, value in values.items() if name not in known}
        return cls.from_kafka(ours), rest

    @classmethod
    def why_refused(cls, name: str, others: Iterable[str] = ()) -> str:
        """Message for users when `name` is not a setting of this class.

        others: further names to suggest from.
        """
        for prefix, reason in cls.refused.items():
            if name == prefix or (prefix.endswith("*") and name.startswith(prefix[:-1])):
                return f"{cls.kind} config {name} is not available: {reason}"
        closest = get_close_matches(name, {*keys_of(cls), *others}, 1)
        hint = f" (did you mean {closest[0]}?)" if closest else f"; {WHERE_SETTINGS_ARE}"
        return f"unknown {cls.kind} config {name!r}{hint}"

    def to_kafka(self) -> dict[str, str]:
        """Every setting by its Kafka name, as text."""
        return {
            name: key.format(getattr(self, field_name))
            for name, (key, field_name) in keys_of(type(self)).items()
        }


_keys: dict[type[Config], dict[str, tuple[ConfigKey, str]]] = {}


def keys_of(cls: type[Config]) -> dict[str, tuple[ConfigKey, str]]:
    """Setting and field name by Kafka's name."""
    if cls not in _keys:
        _keys[cls] = {
            name: (replace(each.metadata["key"], name=name), each.name)
            for each in fields(cls)  # type: ignore[arg-type]  # every Config is a dataclass
            if "key" in each.metadata and (name := kafka_name(each.name))
        }
    return _keys[cls]


def kafka_name(field_name: str) -> str:
    return field_name.replace("_", ".")
