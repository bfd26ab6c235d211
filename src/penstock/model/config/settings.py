"""Settings: frozen dataclasses whose fields take defaults and values from a table of config keys.

    @dataclass(frozen=True, slots=True, kw_only=True)
    class LogConfig:
        retention_ms: int = TOPIC_CONFIG.integer("retention.ms")

    read(LogConfig, values)

A field names its key; the key has the type, the default and the limits. A field whose key does not exist, or
has another type, fails when its module is imported. Fields without a key have values of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, fields, replace
from functools import cache
from typing import Any, Final, NamedTuple, TypeVar, cast

from penstock.model.config.broker_keys import BROKER_KEYS
from penstock.model.config.group_keys import GROUP_KEYS
from penstock.model.config.keys import ConfigKey, ConfigType, ConfigValue
from penstock.model.config.topic_keys import TOPIC_KEYS

__all__ = ["BROKER_CONFIG", "GROUP_CONFIG", "TOPIC_CONFIG", "FieldsOf", "changed", "read"]

S = TypeVar("S")
T = TypeVar("T")
_INTEGERS: Final = (ConfigType.SHORT, ConfigType.INT, ConfigType.LONG)
_TEXTS: Final = (ConfigType.STRING, ConfigType.CLASS, ConfigType.PASSWORD)


class _Source(NamedTuple):
    """The key of a field, and what turns its value into the field's."""

    key: str
    convert: Callable[[Any], Any] | None


class FieldsOf:
    """Makes dataclass fields for the keys of a table. The methods return what the type checker sees."""

    def __init__(self, keys: Mapping[str, ConfigKey]) -> None:
        self._keys = keys

    def integer(self, name: str, *, factor: int = 1) -> int:
        """A whole number, in a unit that is `factor` times smaller than the key's."""
        return cast(int, self._field(name, _INTEGERS, None if factor == 1 else factor.__mul__))

    def number(self, name: str) -> float:
        return cast(float, self._field(name, (ConfigType.DOUBLE, *_INTEGERS)))

    def flag(self, name: str) -> bool:
        return cast(bool, self._field(name, (ConfigType.BOOLEAN,)))

    def text(self, name: str) -> str:
        assert self._keys[name].default is not None, f"{name} may be missing"
        return cast(str, self._field(name, _TEXTS))

    def is_set(self, name: str) -> bool:
        """Whether a text is not empty."""
        return cast(bool, self._field(name, _TEXTS, bool))

    def strings(self, name: str) -> tuple[str, ...]:
        return cast(tuple[str, ...], self._field(name, (ConfigType.LIST,)))

    def choices(self, name: str) -> frozenset[str]:
        """A list whose order does not matter."""
        return cast(frozenset[str], self._field(name, (ConfigType.LIST,), frozenset))

    def parsed(self, name: str, parse: Callable[[Any], T]) -> T:
        """What a function makes of the value."""
        return cast(T, self._field(name, tuple(ConfigType), parse))

    def _field(
        self, name: str, types: tuple[ConfigType, ...], convert: Callable[[Any], Any] | None = None
    ) -> object:
        key = self._keys[name]
        assert key.type in types, f"{name} is a {key.type.name}"
        default = key.default if convert is None else convert(key.default)
        return field(default=default, metadata={_Source: _Source(name, convert)})


TOPIC_CONFIG: Final = FieldsOf(TOPIC_KEYS)
BROKER_CONFIG: Final = FieldsOf(BROKER_KEYS)
GROUP_CONFIG: Final = FieldsOf(GROUP_KEYS)


def read(settings: type[S], values: Mapping[str, ConfigValue], **own: object) -> S:
    """Settings with the values of their keys. `own` has fields without a key, and goes before the values."""
    found = dict(own)
    for name, key, convert in _plan(cast(Any, settings)):
        if name not in own:
            value = values[key]
            found[name] = value if convert is None else convert(value)
    return settings(**found)


def changed(settings: S, values: Mapping[str, ConfigValue]) -> S:
    """Settings in which the fields of some keys have other values."""
    found = {
        name: values[key] if convert is None else convert(values[key])
        for name, key, convert in _plan(cast(Any, type(settings)))
        if key in values
    }
    return cast(S, replace(cast(Any, settings), **found))


@cache
def _plan(settings: Any) -> tuple[tuple[str, str, Callable[[Any], Any] | None], ...]:
    return tuple(
        (each.name, *each.metadata[_Source]) for each in fields(settings) if _Source in each.metadata
    )
