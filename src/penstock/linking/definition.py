"""A cluster link as its configs define it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import translate
from typing import Final

from penstock.model.config.keys import Copies, as_integer, as_strings
from penstock.model.config.links import LINK_KEYS
from penstock.model.config.topic_keys import TOPIC_KEYS
from penstock.model.errors import InvalidConfig
from penstock.model.ids import INTERNAL_TOPICS

__all__ = ["LinkDefinition", "Names", "mirrored_configs"]

#: topics and groups of systems on a cluster: they are mirrored only by their whole names
_HIDDEN: Final = "__"


class Names:
    """Patterns of names: `*` and `?` stand for characters, `!` excludes. The exclusions win."""

    __slots__ = ("_excluded", "_included", "_literal", "_stems")

    def __init__(self, patterns: tuple[str, ...]) -> None:
        self._literal = frozenset(patterns)
        #: what the names of each pattern begin with, and whether the pattern has all such names
        self._stems = [(each[: _stem(each)], each[_stem(each) :]) for each in patterns if each[0] != "!"]
        self._included = _compiled(each for each in patterns if not each.startswith("!"))
        self._excluded = _compiled(each[1:] for each in patterns if each.startswith("!"))

    def match(self, name: str) -> bool:
        if name.startswith(_HIDDEN) and name not in self._literal:
            return False
        included = self._included is not None and self._included.match(name)
        return bool(included) and not (self._excluded is not None and self._excluded.match(name))

    def covers(self, prefix: str) -> bool:
        """Whether all names that begin with a prefix are among these. Hidden names do not count."""
        whole = (stem for stem, rest in self._stems if rest == "*")
        return self._excluded is None and any(prefix.startswith(stem) for stem in whole)

    def may_begin_with(self, prefix: str) -> bool:
        """Whether names that begin with a prefix may be among these."""
        return any(
            stem.startswith(prefix) or (rest != "" and prefix.startswith(stem)) for stem, rest in self._stems
        )


def _stem(pattern: str) -> int:
    """The number of characters before the first `*` or `?`."""
    found = [at for each in "*?" if (at := pattern.find(each)) >= 0]
    return min(found, default=len(pattern))


def _compiled(patterns: Iterable[str]) -> re.Pattern[str] | None:
    found = [translate(each) for each in patterns]
    return re.compile("|".join(found)) if found else None


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkDefinition:
    """What a link mirrors, and from where. `security` has settings under the names of Kafka's clients."""

    name: str
    bootstrap: str
    topics: Names
    groups: Names
    has_groups: bool
    has_acls: bool
    #: the users whose quotas are mirrored
    quotas: Names
    has_quotas: bool
    prefix: str
    paused: bool
    follows_log_start: bool
    interval_ms: int
    source_cluster_id: str
    security: Mapping[str, str] = field(repr=False)

    @classmethod
    def of(cls, name: str, values: Mapping[str, str]) -> LinkDefinition:
        """The definition in the configs of a link, which were checked when they were set."""
        typed = {
            key: each.parse(values[key]) if key in values else each.default for key, each in LINK_KEYS.items()
        }
        groups, users = as_strings(typed["groups"]), as_strings(typed["quotas"])
        return cls(
            name=name,
            bootstrap=values["bootstrap.servers"],
            topics=Names(as_strings(typed["topics"])),
            groups=Names(groups),
            has_groups=bool(groups),
            has_acls=bool(typed["acls"]),
            quotas=Names(users),
            has_quotas=bool(users),
            prefix=str(typed["prefix"]),
            paused=bool(typed["paused"]),
            follows_log_start=typed["log.start"] == "source",
            interval_ms=as_integer(typed["interval.ms"]),
            source_cluster_id=str(typed["source.cluster.id"]),
            security={key: text for key, text in values.items() if key not in LINK_KEYS},
        )

    def mirrors(self, topic: str) -> bool:
        """Whether a topic of the source is mirrored."""
        return topic not in INTERNAL_TOPICS and self.topics.match(topic)

    def local_name(self, topic: str) -> str:
        return self.prefix + topic


def mirrored_configs(source: Mapping[str, str]) -> dict[str, str]:
    """The configs of a topic at the source that its mirror takes over: those that this cluster accepts."""
    taken = {}
    for name, text in source.items():
        key = TOPIC_KEYS.get(name)
        if key is None or Copies.MIRROR in key.left_out:
            continue
        try:
            key.parse(text)
        except InvalidConfig:
            # Apache Kafka may have values that brokers here do not have.
            continue
        taken[name] = text
    return taken
