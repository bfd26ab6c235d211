"""The broker configs of delegation tokens (KIP-48)."""

from __future__ import annotations

from typing import Final

from penstock.model.config.keys import ConfigKey, ConfigType

__all__ = ["TOKEN_KEYS"]

_HOUR_MS: Final = 3_600_000

TOKEN_KEYS: Final[list[ConfigKey]] = [
    ConfigKey(
        "delegation.token.secret.key",
        ConfigType.PASSWORD,
        None,
        "The secret from which the HMACs of delegation tokens are made, the same on all nodes. Without it, "
        "or if it is empty, there are no delegation tokens.",
    ),
    ConfigKey(
        "delegation.token.max.lifetime.ms",
        ConfigType.LONG,
        7 * 24 * _HOUR_MS,
        "The longest lifetime of a delegation token: it cannot be renewed beyond it.",
        low=1,
    ),
    ConfigKey(
        "delegation.token.expiry.time.ms",
        ConfigType.LONG,
        24 * _HOUR_MS,
        "How long a delegation token is valid until it has to be renewed.",
        low=1,
    ),
    ConfigKey(
        "delegation.token.expiry.check.interval.ms",
        ConfigType.LONG,
        _HOUR_MS,
        "How often the controller removes expired delegation tokens. Brokers refuse them before that.",
        low=1,
    ),
]
