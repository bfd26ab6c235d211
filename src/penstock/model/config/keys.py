"""Config keys: type, default and limits, and the conversion of values from and to text.

A value is parsed once, where it enters (a file, a flag, an AlterConfigs request), and is typed from then on.
`InvalidConfig` has the error of a value and the valid values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from enum import Flag, IntEnum, auto
from typing import Any, NamedTuple, TypeAlias

from penstock.model.errors import InvalidConfig

ConfigValue: TypeAlias = bool | int | float | str | tuple[str, ...] | None

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

# Why a key has no effect: `ConfigKey.without_effect`.
COMPATIBLE_ONLY = "Accepted for compatibility; without effect."
NO_KERBEROS = "Without effect: GSSAPI is not supported."
INTERNAL_LISTENER = (
    "Without effect: listener.security.protocol.map has the protocol of the internal listener, which brokers "
    "use among themselves."
)


class ConfigType(IntEnum):
    """The types of DescribeConfigs, by their number on the wire."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSource(IntEnum):
    """Where a value comes from, by its number on the wire; of brokers' and topics' the smaller wins."""

    UNKNOWN = 0
    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    DYNAMIC_CLIENT_METRICS = 7
    DYNAMIC_GROUP = 8


class UpdateMode(IntEnum):
    """Whether a broker key can change at runtime, and for one broker or for the cluster."""

    READ_ONLY = 0
    PER_BROKER = 1
    CLUSTER_WIDE = 2


class Copies(Flag):
    """Copies of a topic that may be in another cluster than the topic."""

    #: in the cluster that mirrors it by a link
    MIRROR = auto()
    #: restored from a backup
    RESTORE = auto()
    #: mounted from an archive, read-only
    MOUNT = auto()


class Synonym(NamedTuple):
    """A broker key that gives a topic key its default; `factor` turns its unit into the topic key's."""

    name: str
    factor: int = 1


_INTEGER_BITS = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_DOUBLE = re.compile(
    r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)", re.ASCII
)


class ConfigKey(NamedTuple):
    """One config key.

    `low` and `high` are inclusive. `choices` limits a string, or each element of a list. `check` returns what
    is wrong with a typed value, or None. An `internal` key is accepted but not shown until it is set.
    """

    name: str
    type: ConfigType
    default: ConfigValue
    doc: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    check: Callable[[Any], str | None] | None = None
    update_mode: UpdateMode = UpdateMode.READ_ONLY
    synonyms: tuple[Synonym, ...] = ()
    internal: bool = False
    #: whether a list may contain an element twice, which then counts once
    repeatable: bool = False
    #: a sentence that says why the key is accepted but has no effect; empty if it has one
    without_effect: str = ""
    #: copies of a topic that do not take its value over: it has a meaning in the topic's own cluster only
    left_out: Copies = Copies(0)

    @property
    def documentation(self) -> str:
        """The text of DescribeConfigs and of the configuration page."""
        return f"{self.doc} {self.without_effect}".rstrip()

    @property
    def sensitive(self) -> bool:
        """Whether the value must never be shown."""
        return self.type is ConfigType.PASSWORD

    @property
    def read_only(self) -> bool:
        return self.update_mode is UpdateMode.READ_ONLY

    def parse(self, text: str) -> ConfigValue:
        """The typed value of `text`; raises InvalidConfig."""
        value = self._typed(text.strip() if self.type is not ConfigType.PASSWORD else text)
        complaint = self._complaint(value)
        if complaint is not None:
            raise self._invalid(text, complaint)
        return value

    def format(self, value: ConfigValue) -> str | None:
        """The text of a typed value, as DescribeConfigs shows it; None stays None (null on the wire)."""
        if value is None:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        if isinstance(value, float):
            if value != value:
                return "NaN"
            return repr(value).replace("e+", "E").upper()
        return str(value)

    def limits(self) -> str:
        """The limits of the key beyond its type, as text; empty if there are none."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        if self.low is not None and self.high is not None:
            return f"between {self.low} and {self.high}"
        if self.low is not None:
            return f"at least {self.low}"
        return ""

    def _typed(self, text: str) -> ConfigValue:
        if self.type is ConfigType.BOOLEAN:
            if text.lower() not in ("true", "false"):
                raise self._invalid(text, "Expected value to be either true or false")
            return text.lower() == "true"
        if self.type in _INTEGER_BITS:
            return self._integer(text)
        if self.type is ConfigType.DOUBLE:
            return self._double(text)
        if self.type is ConfigType.LIST:
            parts = [part.strip() for part in text.split(",")] if text else []
            return tuple(dict.fromkeys(parts) if self.repeatable else parts)
        return text

    def _double(self, text: str) -> float:
        """As Java reads it: a type may be behind the number, and NaN is one."""
        if _DOUBLE.fullmatch(text) is None:
            raise self._invalid(text, f"Not a number of type {self.type.name}")
        return float(text.rstrip("fFdD"))

    def _integer(self, text: str) -> int:
        bits = _INTEGER_BITS[self.type]
        if _INTEGER.fullmatch(text) is None or len(text) > 20:
            raise self._invalid(text, f"Not a number of type {self.type.name}")
        value = int(text)
        if not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
            raise self._invalid(text, f"Not a number of type {self.type.name}")
        return value

    def _complaint(self, value: ConfigValue) -> str | None:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            too_low = self.low is not None and value < self.low
            too_high = self.high is not None and value > self.high
            # Like Kafka, a ratio may be NaN: nothing reaches it.
            if value != value and self.high is None:
                return f"Not a number of type {self.type.name}"
            if too_low:
                return f"Value must be at least {self.low}"
            if too_high:
                return f"Value must be no more than {self.high}"
        elif isinstance(value, tuple):
            if len(set(value)) != len(value):
                return "must not contain an element twice"
            if "" in value:
                return "must not have empty elements"
            if self.choices and not set(value) <= set(self.choices):
                return self._one_of()
        elif self.choices and value not in self.choices:
            return self._one_of()
        return self.check(value) if self.check is not None else None

    def _one_of(self) -> str:
        return f"String must be one of: {', '.join(self.choices)}"

    def _invalid(self, text: str, complaint: str) -> InvalidConfig:
        """Kafka's text, with which people and scripts search: its own complaints begin with a capital."""
        shown = "[hidden]" if self.sensitive else text
        return InvalidConfig(f"Invalid value {shown} for configuration {self.name}: {complaint}")


def not_empty(value: tuple[str, ...]) -> str | None:
    """For lists and strings that must name something."""
    return None if value else "must not be empty"


def table(keys: Iterable[ConfigKey]) -> dict[str, ConfigKey]:
    """Keys by name; a name stands only once."""
    by_name: dict[str, ConfigKey] = {}
    for key in keys:
        assert key.name not in by_name, key.name
        by_name[key.name] = key
    return by_name


def bounded_group_key(broker: Mapping[str, ConfigKey], name: str, doc: str) -> ConfigKey:
    """A group config with a broker config, `group.KEY`, for its default and two for its limits."""
    synonym = broker[f"group.{name}"]
    return ConfigKey(
        name, synonym.type, synonym.default, doc, low=synonym.low, synonyms=(Synonym(synonym.name),)
    )


def find_key(keys: Mapping[str, ConfigKey], name: str, kind: str) -> ConfigKey:
    """The key of that name; an InvalidConfig for an unknown name offers the nearest valid one."""
    key = keys.get(name)
    if key is not None:
        return key
    from difflib import get_close_matches  # only a mistake pays for the import

    nearest = get_close_matches(name, keys, n=1, cutoff=0.6)
    hint = f"; did you mean {nearest[0]}?" if nearest else ""
    raise InvalidConfig(f"Unknown {kind} config name: {name}{hint}")


def as_integer(value: ConfigValue) -> int:
    assert isinstance(value, int)
    return value


def as_strings(value: ConfigValue) -> tuple[str, ...]:
    """The entries of a list, none where it is not set."""
    assert value is None or isinstance(value, tuple)
    return value or ()
