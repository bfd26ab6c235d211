"""Combines the configs of a broker's start from their sources: defaults, file, environment, flags.

A stronger source also overrides other names for the same setting in a weaker one, so that
`PENSTOCK_LOG_RETENTION_HOURS` overrides a file's `log.retention.ms`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from penstock.model.addresses import bracketed
from penstock.model.config.broker_keys import SYNONYM_GROUPS
from penstock.model.config.sections import BOOTSTRAP_SERVERS, HOST, INTERNAL_PORT_OFFSET, PORT
from penstock.model.errors import InvalidConfig

__all__ = ["DEFAULT_HOST", "DEFAULT_PORT", "INTERNAL", "MAX_VOTERS", "effective_configs"]

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 9092
DEFAULT_INTERNAL_PORT_OFFSET: Final = 10_000
#: name of the listener that brokers use among themselves
INTERNAL: Final = "INTERNAL"
MAX_VOTERS: Final = 5

_VOTERS: Final = "controller.quorum.voters"
#: what else a source takes back that says the first
_TAKES_BACK: Final[Mapping[str, tuple[str, ...]]] = {
    **{name: tuple(other for other, _ in group) for name, group in SYNONYM_GROUPS.items()},
    "node.id": ("broker.id",),
    "broker.id": ("node.id",),
    "log.dir": ("log.dirs", "penstock.memory"),
    "log.dirs": ("log.dir", "penstock.memory"),
    "listeners": (HOST, PORT),
    HOST: ("listeners",),
    PORT: ("listeners",),
    BOOTSTRAP_SERVERS: (_VOTERS,),
    _VOTERS: (BOOTSTRAP_SERVERS,),
}
_SERVER: Final = re.compile(r"(?:(?P<id>[0-9]+)@)?(?P<host>\[[^\]]+\]|[^:@\[\]]+):(?P<port>[0-9]+)")


class _Member(NamedTuple):
    """A broker as `cluster.bootstrap_servers` has it; the host is in brackets where it has colons."""

    host: str
    port: int


def effective_configs(layers: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Kafka's configs out of sources, the weakest first; raises InvalidConfig."""
    merged: dict[str, str] = {}
    for layer in layers:
        for name in layer:
            for other in _TAKES_BACK.get(name, ()):
                if other != name:
                    merged.pop(other, None)
        merged.update(layer)
    offset = _number(
        INTERNAL_PORT_OFFSET, merged.pop(INTERNAL_PORT_OFFSET, None), DEFAULT_INTERNAL_PORT_OFFSET
    )
    servers = merged.pop(BOOTSTRAP_SERVERS, None)
    if servers is None:
        return _with_listener(merged, DEFAULT_PORT)
    if _VOTERS in merged:
        raise InvalidConfig(f"{BOOTSTRAP_SERVERS} and {_VOTERS} both define the voters: keep one of them")
    return _in_cluster(merged, _members(servers), offset)


def _with_listener(configs: dict[str, str], port: int, *, offset: int | None = None) -> dict[str, str]:
    host, chosen = configs.pop(HOST, None), configs.pop(PORT, None)
    if host is not None or chosen is not None or "listeners" not in configs:
        where = bracketed(DEFAULT_HOST if host is None else host)
        bound = _number(PORT, chosen, port)
        configs["listeners"] = f"PLAINTEXT://{where}:{bound}"
        if offset is not None:
            configs["listeners"] += f",{INTERNAL}://{where}:{bound + offset}"
    return configs


def _in_cluster(configs: dict[str, str], members: Mapping[int, _Member], offset: int) -> dict[str, str]:
    """A broker among others: the first of them vote, and each listens for the others next to its port.

    Raises InvalidConfig for broker 0 if the list is numbered from 1: as a broker that is not in the list it
    would start without a vote.
    """
    node = _number("broker.id", configs.get("node.id", configs.get("broker.id")), 1)
    if node == 0 and list(members) == list(range(1, len(members) + 1)):
        numbered = ", ".join(f"{i}@{m.host}:{m.port}" for i, m in enumerate(members.values()))
        raise InvalidConfig(f"{BOOTSTRAP_SERVERS} counts from 1 and has no broker 0: write {numbered}")
    voters = dict(list(members.items())[:MAX_VOTERS])
    configs[_VOTERS] = ",".join(f"{id_}@{m.host}:{m.port + offset}" for id_, m in voters.items())
    own = members.get(node)
    if node not in voters:
        configs.setdefault("process.roles", "broker")
    if own is not None and "listeners" not in configs:
        port = _number(PORT, configs.get(PORT), own.port)
        if port != own.port:
            raise InvalidConfig(
                f"{PORT} is {port}, but {BOOTSTRAP_SERVERS} has broker {node} at {own.host}:{own.port}: "
                f"make them the same"
            )
        configs.setdefault(
            "advertised.listeners",
            f"PLAINTEXT://{own.host}:{own.port},{INTERNAL}://{own.host}:{own.port + offset}",
        )
    return _with_listener(configs, own.port if own is not None else DEFAULT_PORT, offset=offset)


def _members(servers: str) -> dict[int, _Member]:
    members: dict[int, _Member] = {}
    for position, text in enumerate(servers.split(","), start=1):
        match = _SERVER.fullmatch(text.strip())
        if match is None or not 0 < int(match["port"]) < 65536:
            raise InvalidConfig(f"{BOOTSTRAP_SERVERS} has {text.strip()!r}: write HOST:PORT")
        id_ = int(match["id"] or position)
        if id_ in members:
            raise InvalidConfig(f"{BOOTSTRAP_SERVERS} has broker {id_} twice")
        members[id_] = _Member(match["host"], int(match["port"]))
    return members


def _number(name: str, text: str | None, default: int) -> int:
    if text is None:
        return default
    if not text.strip().isdigit():
        raise InvalidConfig(f"{name}: {text!r} is not a number")
    return int(text)
