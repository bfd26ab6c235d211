"""Config files as text: YAML with Kafka's names, or Kafka's own `.properties`.

The result is names to text, all names known; `BrokerConfig` checks the values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from penstock.model.config.broker_keys import BROKER_KEYS
from penstock.model.config.keys import find_key
from penstock.model.errors import InvalidConfig

ConfigFileKind = Literal["yaml", "properties"]

_PROPERTY = re.compile(r"(?P<name>(?:\\.|[^\s=:\\])+)[ \t\f]*[=:]?[ \t\f]*(?P<value>.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def load_config_file(text: str, kind: ConfigFileKind) -> dict[str, str]:
    """A broker config file's names and values; raises InvalidConfig for what is malformed or unknown."""
    pairs = _yaml_pairs(text) if kind == "yaml" else _property_pairs(text)
    configs: dict[str, str] = {}
    for name, value in pairs:
        find_key(BROKER_KEYS, name, "broker")
        if name in configs:
            raise InvalidConfig(f"{name} is set twice: keep one of them")
        configs[name] = value
    return configs


def _yaml_pairs(text: str) -> Iterator[tuple[str, str]]:
    import yaml  # only a YAML file pays for the import

    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InvalidConfig(f"not valid YAML: {' '.join(str(error).split())}") from None
    if content is None:
        return
    if not isinstance(content, Mapping):
        raise InvalidConfig("a YAML config file must be a mapping of config names to values")
    yield from _flattened("", content)


def _flattened(prefix: str, mapping: Mapping[Any, Any]) -> Iterator[tuple[str, str]]:
    for part, value in mapping.items():
        name = f"{prefix}{part}"
        if isinstance(value, Mapping):
            yield from _flattened(f"{name}.", value)
        else:
            yield name, _scalar(name, value)


def _scalar(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int, float)):
        return str(value)
    if isinstance(value, list):
        return ",".join(_scalar(name, element) for element in value)
    raise InvalidConfig(f"{name} has no value: write one, or remove the line")


def _property_pairs(text: str) -> Iterator[tuple[str, str]]:
    for line in _logical_lines(text):
        match = _PROPERTY.fullmatch(line)
        if match is None:
            raise InvalidConfig(f"{line!r} is not a property: write name=value")
        yield _unescaped(match["name"]), _unescaped(match["value"])


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments and blanks; one that ends in an odd number of backslashes continues."""
    held = ""
    for raw in text.splitlines():
        line = raw.lstrip(" \t\f")
        if not held and (not line or line[0] in "#!"):
            continue
        line = held + line
        trailing = len(line) - len(line.rstrip("\\"))
        if trailing % 2:
            held = line[:-1]
        else:
            held = ""
            yield line
    if held:
        yield held


def _unescaped(text: str) -> str:
    def character(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(code[1:], 16)) if len(code) == 5 else _CONTROL.get(code, code)

    return _ESCAPE.sub(character, text)
