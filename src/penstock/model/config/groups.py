"""A group's configs: what was set for it over what the broker says, within the broker's bounds.

A key with a broker config for its default, `group.KEY`, may have a least and a most beside it. A value
outside of these is refused where it is set; if they move later, the nearer one counts. Other keys are the
group's only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.model.config.group_keys import GROUP_KEYS
from penstock.model.config.keys import ConfigValue, as_integer, find_key
from penstock.model.errors import InvalidConfig

__all__ = ["check_broker_group_configs", "check_group_configs", "group_values"]

#: upper limits whose names follow no rule
_MOST: Final = {"streams.num.standby.replicas": "group.streams.max.standby.replicas"}


def check_group_configs(overrides: Mapping[str, str], broker: Mapping[str, ConfigValue]) -> None:
    """Raise InvalidConfig if a group cannot have `overrides`."""
    values = _defaults(broker)
    for name, text in overrides.items():
        key = find_key(GROUP_KEYS, name, "group")
        values[name] = key.parse(text)
        if key.synonyms:
            _check_bounds(name, as_integer(values[name]), broker)
    _check_sessions(values, prefix="")


def check_broker_group_configs(broker: Mapping[str, ConfigValue]) -> None:
    """Raise InvalidConfig if what the broker says of all groups does not fit together."""
    values = _defaults(broker)
    for name, value in values.items():
        if GROUP_KEYS[name].synonyms:
            _check_bounds(name, as_integer(value), broker, prefix="group.")
    _check_sessions(values, prefix="group.")


def group_values(overrides: Mapping[str, str], broker: Mapping[str, ConfigValue]) -> dict[str, ConfigValue]:
    """Every group config with the value that counts."""
    values = _defaults(broker)
    for name, text in overrides.items():
        values[name] = GROUP_KEYS[name].parse(text)
        if GROUP_KEYS[name].synonyms:
            least, most = _bounds(name)
            if least in broker:
                values[name] = max(as_integer(values[name]), as_integer(broker[least]))
            if most in broker:
                values[name] = min(as_integer(values[name]), as_integer(broker[most]))
    return values


def _defaults(broker: Mapping[str, ConfigValue]) -> dict[str, ConfigValue]:
    return {
        name: broker[key.synonyms[0].name] if key.synonyms else key.default
        for name, key in GROUP_KEYS.items()
    }


def _bounds(name: str) -> tuple[str, str]:
    """The broker's configs that bound a group's; a config may have one of them, or none."""
    kind, _, rest = name.partition(".")
    return f"group.{kind}.min.{rest}", _MOST.get(name, f"group.{kind}.max.{rest}")


def _check_bounds(name: str, value: int, broker: Mapping[str, ConfigValue], prefix: str = "") -> None:
    least, most = _bounds(name)
    if least in broker and value < as_integer(broker[least]):
        raise InvalidConfig(f"{prefix}{name} ({value}) must not be less than {least} ({broker[least]})")
    if most in broker and value > as_integer(broker[most]):
        raise InvalidConfig(f"{prefix}{name} ({value}) must not be more than {most} ({broker[most]})")


def _check_sessions(values: Mapping[str, ConfigValue], prefix: str) -> None:
    for kind in ("consumer", "share", "streams"):
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        if as_integer(values[session]) <= as_integer(values[heartbeat]):
            raise InvalidConfig(
                f"{prefix}{session} ({values[session]}) must be more than "
                f"{prefix}{heartbeat} ({values[heartbeat]})"
            )
