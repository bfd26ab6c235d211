"""Subscriptions to metrics of clients (KIP-714), as configs. `penstock.observability` applies them.

The event loop compiles the patterns of a subscription, and matches the names that clients give themselves.
So the patterns are in RE2's syntax, and their length and their memory are bounded.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any, Final

from penstock.model.config.descriptions import ConfigEntry, ConfigSynonym, selected
from penstock.model.config.keys import ConfigKey, ConfigSource, ConfigType, table
from penstock.model.errors import ApiError, InvalidConfig, InvalidRequest
from penstock.model.regexes import compile_regex

__all__ = ["CLIENT_METRICS_KEYS", "check_client_metrics", "compile_client_pattern", "describe_client_metrics"]

_INTERVAL_MS: Final = (100, 3_600_000)
#: The characters of all patterns of a subscription: RE2 needs up to 5 ms for 128, of Unicode classes,
#: whatever the bound of its memory.
_PATTERNS_MAX: Final = 512
#: bytes of a compiled pattern
_PATTERN_MEMORY: Final = 1 << 15
_MATCHED: Final = frozenset(
    {
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)

CLIENT_METRICS_KEYS: Final = table(
    [
        ConfigKey("interval.ms", ConfigType.INT, 300_000, "How often clients push metrics."),
        ConfigKey(
            "match",
            ConfigType.LIST,
            (),
            "The matching clients: NAME=REGEX, comma-separated.",
            repeatable=True,
        ),
        ConfigKey("metrics", ConfigType.LIST, (), "Prefixes of the metrics.", repeatable=True),
    ]
)


def check_client_metrics(values: Mapping[str, str]) -> None:
    """Raise what Kafka answers if a subscription cannot have `values`."""
    for name, text in values.items():
        key = CLIENT_METRICS_KEYS.get(name)
        if key is None:
            raise InvalidRequest(f"Unknown client metrics configuration: {name}")
        value = key.parse(text)
        if name == "interval.ms":
            least, most = _INTERVAL_MS
            assert isinstance(value, int)
            if not least <= value <= most:
                between = f"interval must be between {least} and {most} (1 hour)"
                raise InvalidRequest(f"Invalid value {value} for interval.ms, {between}")
        elif name == "match":
            assert isinstance(value, tuple)
            if sum(map(len, value)) > _PATTERNS_MAX:
                raise InvalidConfig(f"match: the patterns have more than {_PATTERNS_MAX} characters")
            for pattern in value:
                _check_pattern(pattern)


def _check_pattern(pattern: str) -> None:
    name, separator, regex = pattern.partition("=")
    if not separator or name.strip() not in _MATCHED or compile_client_pattern(regex.strip()) is None:
        raise InvalidConfig(f"Illegal client matching pattern: {pattern}")


@lru_cache(maxsize=1000)
def compile_client_pattern(pattern: str) -> Any:
    """The compiled pattern of one attribute; None if it is invalid, or too large for the event loop."""
    if len(pattern) > _PATTERNS_MAX:
        return None
    try:
        return compile_regex(pattern, _PATTERN_MEMORY)
    except ApiError:
        return None


def describe_client_metrics(
    overrides: Mapping[str, str], names: Collection[str] | None = None
) -> list[ConfigEntry]:
    """The configs of a subscription, given what was set for it; one that was never made has the defaults."""
    entries = []
    for name in selected(CLIENT_METRICS_KEYS, names):
        key = CLIENT_METRICS_KEYS[name]
        default = ConfigSynonym(name, key.format(key.default), ConfigSource.DEFAULT)
        own = ConfigSynonym(name, overrides.get(name), ConfigSource.DYNAMIC_CLIENT_METRICS)
        synonyms = (own, default) if name in overrides else (default,)
        first = synonyms[0]
        entries.append(
            ConfigEntry(name, first.value, first.source, key.type, False, False, key.documentation, synonyms)
        )
    return entries
