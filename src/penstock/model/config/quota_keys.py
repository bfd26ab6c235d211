"""The broker configs of client quotas."""

from __future__ import annotations

from penstock.model.config.keys import ConfigKey, ConfigType

__all__ = ["QUOTA_KEYS"]

QUOTA_KEYS: list[ConfigKey] = [
    ConfigKey(
        "quota.window.num",
        ConfigType.INT,
        11,
        "The number of samples over which the rates of client quotas and of new connections are measured.",
        low=1,
    ),
    ConfigKey(
        "quota.window.size.seconds",
        ConfigType.INT,
        1,
        "The length of each sample of client quotas and of new connections.",
        low=1,
    ),
    ConfigKey(
        "controller.quota.window.num",
        ConfigType.INT,
        11,
        "With controller.quota.window.size.seconds: the time whose controller mutations a client may use at "
        "once.",
        low=1,
    ),
    ConfigKey(
        "controller.quota.window.size.seconds",
        ConfigType.INT,
        1,
        "The length of each sample of the quota of controller mutations.",
        low=1,
    ),
]
