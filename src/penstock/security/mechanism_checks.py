"""The check that broker configs name SASL mechanisms that exist."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.model.config.keys import ConfigValue
from penstock.model.config.listener_names import LISTENER_PREFIX, listener_name
from penstock.model.errors import InvalidConfig
from penstock.security.mechanisms import MECHANISMS

__all__ = ["check_mechanisms"]

#: the keys whose values are names of mechanisms
_NAMING: Final = ("sasl.enabled.mechanisms", "sasl.mechanism.inter.broker.protocol")


def check_mechanisms(configs: Mapping[str, ConfigValue]) -> None:
    """Refuse configs that name an unknown mechanism, in a value or as `listener.name.…`."""
    for name, value in configs.items():
        parts = listener_name(name)
        if parts is not None and parts.mechanism and parts.mechanism.upper() not in MECHANISMS:
            raise InvalidConfig(f"Unknown broker config name: {name}{_meant(name, parts.mechanism)}")
        if name in _NAMING or (parts is not None and parts.key.name in _NAMING):
            named = value if isinstance(value, tuple) else (value,)
            if not set(named) <= set(MECHANISMS):
                raise InvalidConfig(
                    f"Invalid value {','.join(map(str, named))} for configuration {name}: "
                    f"String must be one of: {', '.join(MECHANISMS)}"
                )


def _meant(name: str, mechanism: str) -> str:
    from difflib import get_close_matches  # only a mistake pays for the import

    nearest = get_close_matches(mechanism, [each.lower() for each in MECHANISMS], n=1, cutoff=0.6)
    if not nearest:
        return ""
    listener, _, rest = name.removeprefix(LISTENER_PREFIX).partition(".")
    return f"; did you mean {LISTENER_PREFIX}{listener}.{nearest[0]}{rest.removeprefix(mechanism)}?"
