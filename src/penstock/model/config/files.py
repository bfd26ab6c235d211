"""Config files as text: YAML with short names in sections or with Kafka's names, or Kafka's `.properties`.

The result is names to text, all names known; `layers` puts it together with other sources, and `BrokerConfig`
checks the values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from penstock.model.config.declared import DeclaredTopic, declared_topic
from penstock.model.config.foreign_keys import reason_to_ignore
from penstock.model.config.sections import SECTION_KEYS, interpret
from penstock.model.errors import InvalidConfig

__all__ = ["ConfigFile", "ConfigFileKind", "InvalidYaml", "configs_of", "load_config_file", "property_pairs"]

ConfigFileKind = Literal["yaml", "properties"]

_PROPERTY = re.compile(r"(?P<name>(?:\\.|[^\s=:\\])+)[ \t\f]*[=:]?[ \t\f]*(?P<value>.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_TOPICS = "topics"


class ConfigFile(NamedTuple):
    """The content of a file: configs by name, topics to create, and settings that are left out.

    `refused` are short names, `ignored` configs that only Apache Kafka has, each with the reason.
    """

    configs: dict[str, str]
    topics: tuple[DeclaredTopic, ...] = ()
    refused: Mapping[str, str] = {}
    ignored: Mapping[str, str] = {}


def load_config_file(text: str, kind: ConfigFileKind) -> ConfigFile:
    """A broker config file; raises InvalidConfig for what is malformed or unknown."""
    if kind == "properties":
        pairs = list(property_pairs(text))
        ignored = _ignored(pairs)
        return ConfigFile(configs_of(each for each in pairs if each[0] not in ignored), ignored=ignored)
    content = _yaml_mapping(text)
    topics = tuple(_declared_topics(content.pop(_TOPICS, None)))
    settings = list(_flattened("", content))
    ignored = _ignored(settings)
    settings = [each for each in settings if each[0] not in ignored]
    refused = {name: SECTION_KEYS[name].note for name, text in settings if interpret(name, text) is None}
    configs = configs_of(each for each in settings if each[0] not in refused)
    return ConfigFile(configs, topics, refused, ignored)


def _ignored(settings: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The configs that only Apache Kafka has, each with the reason; InvalidConfig for one that is refused."""
    reasons = ((name, reason_to_ignore(name, text)) for name, text in settings)
    return {name: reason for name, reason in reasons if reason is not None}


def configs_of(settings: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Configs by name out of settings by short names or Kafka's; InvalidConfig for what is refused, too."""
    configs: dict[str, str] = {}
    for name, text in settings:
        said = interpret(name, text)
        if said is None:
            raise InvalidConfig(f"{name} is refused: {SECTION_KEYS[name].note}")
        if said[0] in configs:
            raise InvalidConfig(f"{said[0]} is set twice: keep one of them")
        configs[said[0]] = said[1]
    return configs


def _yaml_mapping(text: str) -> dict[Any, Any]:
    import yaml  # only a YAML file pays for the import

    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise _invalid_yaml(error) from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise InvalidConfig("a YAML config file must be a mapping of config names to values")
    return content


class InvalidYaml(InvalidConfig):
    """Text that is not YAML. `place` is its line and column from 1, `excerpt` the line with a caret below."""

    def __init__(self, problem: str, place: tuple[int, int] | None = None, excerpt: str = "") -> None:
        super().__init__(f"not valid YAML: {problem}")
        self.place = place
        self.excerpt = excerpt


def _invalid_yaml(error: Any) -> InvalidYaml:
    """The error of a parser: marked with its place, or not."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return InvalidYaml(" ".join(str(error).split()))
    context = getattr(error, "context", None)
    problem = str(error.problem or "it cannot be parsed")
    where = getattr(error, "context_mark", None)
    if context and where is not None and where.line != mark.line:
        problem += f" ({context} that begins in line {where.line + 1})"
    return InvalidYaml(problem, (mark.line + 1, mark.column + 1), mark.get_snippet(indent=2) or "")


def _declared_topics(content: object) -> Iterator[DeclaredTopic]:
    if content is None:
        return
    if not isinstance(content, Mapping):
        raise InvalidConfig("topics must be a mapping of topic names to their settings")
    for topic, settings in content.items():
        if settings is not None and not isinstance(settings, Mapping):
            raise InvalidConfig(f"topics.{topic} must be a mapping, for example {{partitions: 6}}")
        yield declared_topic(str(topic), dict(_flattened("", settings or {})))


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


def property_pairs(text: str) -> Iterator[tuple[str, str]]:
    """Names and values in a properties file of Java."""
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
