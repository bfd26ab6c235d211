"""A group's configs: what was set for it over what the broker says, within the broker's bounds.

Every key takes its default from the broker's `group.KEY`, which has a least and a most beside it. A value
outside of these is refused where it is set; if they move later, the nearer one counts.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.model.config.group_keys import GROUP_KEYS
from penstock.model.config.keys import ConfigValue, as_integer, find_key
from penstock.model.errors import InvalidConfig

__all__ = ["check_broker_group_configs", "check_group_configs", "group_values"]


def check_group_configs(overrides: Mapping[str, str], broker: Mapping[str, ConfigValue]) -> None:
    """Raise InvalidConfig if a group cannot have `overrides`."""
    values = _defaults(broker)
    for name, text in overrides.items():
        values[name] = as_integer(find_key(GROUP_KEYS, name, "group").parse(text))
        _check_bounds(name, values[name], broker)
    _check_session(values, prefix="")


def check_broker_group_configs(broker: Mapping[str, ConfigValue]) -> None:
    """Raise InvalidConfig if what the broker says of all groups does not fit together."""
    values = _defaults(broker)
    for name, value in values.items():
        _check_bounds(name, value, broker, prefix="group.")
    _check_session(values, prefix="group.")


def group_values(overrides: Mapping[str, str], broker: Mapping[str, ConfigValue]) -> dict[str, int]:
    """Every group config with the value that counts."""
    values = _defaults(broker)
    for name, text in overrides.items():
        least, most = (as_integer(broker[bound]) for bound in _bounds(name))
        values[name] = min(max(as_integer(GROUP_KEYS[name].parse(text)), least), most)
    return values


def _defaults(broker: Mapping[str, ConfigValue]) -> dict[str, int]:
    return {name: as_integer(broker[key.synonyms[0].name]) for name, key in GROUP_KEYS.items()}


def _bounds(name: str) -> tuple[str, str]:
    """The broker's configs that bound a group's."""
    kind, _, rest = name.partition(".")
    return f"group.{kind}.min.{rest}", f"group.{kind}.max.{rest}"


def _check_bounds(name: str, value: int, broker: Mapping[str, ConfigValue], prefix: str = "") -> None:
    least, most = _bounds(name)
    if value < as_integer(broker[least]):
        raise InvalidConfig(f"{prefix}{name} ({value}) must not be less than {least} ({broker[least]})")
    if value > as_integer(broker[most]):
        raise InvalidConfig(f"{prefix}{name} ({value}) must not be more than {most} ({broker[most]})")


def _check_session(values: Mapping[str, int], prefix: str) -> None:
    session, heartbeat = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
    if values[session] <= values[heartbeat]:
        raise InvalidConfig(
            f"{prefix}{session} ({values[session]}) must be more than "
            f"{prefix}{heartbeat} ({values[heartbeat]})"
        )
