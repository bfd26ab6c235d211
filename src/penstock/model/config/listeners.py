"""Listeners: `NAME://HOST:PORT` lists into endpoints, each with what it binds and what it advertises."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

from penstock.model.config.keys import ConfigValue, as_strings
from penstock.model.errors import InvalidConfig

_LISTENER = re.compile(
    r"(?P<name>[A-Za-z0-9_-]+)://(?:\[(?P<v6>[0-9a-fA-F:.%]+)\]|(?P<host>[^:/\[\]]*)):(?P<port>[0-9]+)"
)
_VOTERS = "controller.quorum.voters"
_BOOTSTRAP = "controller.quorum.bootstrap.servers"
_VOTER = re.compile(r"(?P<id>[0-9]+)@(?:\[(?P<v6>[0-9a-fA-F:.%]+)\]|(?P<host>[^:/@\[\]]+)):(?P<port>[0-9]+)")
_PROTOCOL_MAP = "listener.security.protocol.map"
_OVERRIDES = "max.connections.per.ip.overrides"
_OVERRIDE = re.compile(
    r"(?:\[(?P<v6>[0-9a-fA-F:.%]+)\]|(?P<address>[0-9.]+|[0-9a-fA-F:.%]*:[0-9a-fA-F:.%]*)):(?P<count>[0-9]+)"
)
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


def security_protocol_id(protocol: str) -> int:
    """The number of a security protocol in metadata records."""
    return _PROTOCOLS.index(protocol)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a listener that binds `host`; an empty one is every interface."""
    return host in ("localhost", "::1") or re.fullmatch(r"127(\.[0-9]{1,3}){3}", host) is not None


class Endpoint(NamedTuple):
    """One named listener.

    An empty `host` binds every interface and port 0 any free port. An empty `advertised_host` or an
    `advertised_port` of 0 is for the broker to fill in, once it is bound.
    """

    name: str
    host: str
    port: int
    advertised_host: str
    advertised_port: int
    protocol: str


def parse_endpoints(values: Mapping[str, ConfigValue]) -> tuple[Endpoint, ...]:
    """The endpoints for clients in a broker's configs; raises InvalidConfig."""
    bound, advertised = _bound_and_advertised(values)
    protocols = _protocol_map(str(values["listener.security.protocol.map"]))
    endpoints = tuple(
        Endpoint(name, *address, *_advertise(address, advertised.get(name)), _protocol(name, protocols))
        for name, address in bound.items()
        if name not in _internal_names(values)
    )
    if not endpoints and "broker" in as_strings(values["process.roles"]):
        raise InvalidConfig("listeners has only controller listeners: add one for clients")
    inter_broker = values["inter.broker.listener.name"]
    if inter_broker is not None and inter_broker not in bound:
        raise InvalidConfig(f"inter.broker.listener.name is {inter_broker}, which is not in listeners")
    return endpoints


def parse_internal_endpoint(values: Mapping[str, ConfigValue]) -> Endpoint | None:
    """The endpoint that nodes use among themselves; None where the broker is a cluster of its own."""
    bound, advertised = _bound_and_advertised(values)
    protocols = _protocol_map(str(values["listener.security.protocol.map"]))
    for name in _internal_names(values):
        if name in bound:
            announced = _advertise(bound[name], advertised.get(name))
            # Kafka, too, takes a controller's listener that the map does not name for a plain one.
            protocol = _protocol(name, {name: "PLAINTEXT"} | protocols)
            return Endpoint(name, *bound[name], *announced, protocol)
    return None


def listener_names(values: Mapping[str, ConfigValue], static: Collection[str]) -> list[str]:
    """The listeners that configs may be for: those of this node, and those of a map that the user has set.

    Why: nodes may share a config file, and other nodes may have other listeners.
    """
    bound, _ = _bound_and_advertised(values)
    mapped: Collection[str] = ()
    if _PROTOCOL_MAP in static:
        mapped = _protocol_map(str(values[_PROTOCOL_MAP]))
    return list(dict.fromkeys((*bound, *_internal_names(values), *mapped)))


def parse_voters(values: Mapping[str, ConfigValue]) -> dict[int, tuple[str, int]]:
    """The voters that the quorum starts with, by id; raises InvalidConfig."""
    voters: dict[int, tuple[str, int]] = {}
    for text in as_strings(values[_VOTERS]):
        match = _VOTER.fullmatch(text)
        if match is None or int(match["port"]) > 65535:
            raise InvalidConfig(f"{_VOTERS} has {text!r}: write ID@HOST:PORT, for example 1@127.0.0.1:19092")
        if int(match["id"]) in voters:
            raise InvalidConfig(f"{_VOTERS} has node {match['id']} twice")
        voters[int(match["id"])] = (match["v6"] or match["host"], int(match["port"]))
    return voters


def check_roles(
    values: Mapping[str, ConfigValue], internal: Endpoint | None, voters: Mapping[int, tuple[str, int]]
) -> None:
    """Raise InvalidConfig where a node's roles, its internal listener and the voters cannot go together."""
    servers = as_strings(values[_BOOTSTRAP])
    # A node that is to find itself is a cluster of its own, as Kafka's stock config is.
    ports = [server.rpartition(":")[2] for server in servers]
    if servers and not voters and (internal is None or ports != [str(internal.port)]):
        raise InvalidConfig(
            f"{_BOOTSTRAP} does not define the voters: set {_VOTERS}, to the same on every node"
        )
    if "controller" not in as_strings(values["process.roles"]):
        if not voters:
            raise InvalidConfig(
                f"a node that is not a controller needs the addresses of the voters: set {_VOTERS}"
            )
        if values["node.id"] in voters:
            raise InvalidConfig(
                f"node {values['node.id']} is a voter, so process.roles must contain controller"
            )
    if internal is None and (voters or "broker" not in as_strings(values["process.roles"])):
        name = (*_internal_names(values), "INTERNAL")[0]
        raise InvalidConfig(f"a node of a cluster needs an internal listener: add {name}://HOST:PORT")


def _internal_names(values: Mapping[str, ConfigValue]) -> tuple[str, ...]:
    return tuple(name.upper() for name in as_strings(values["controller.listener.names"]))


def _bound_and_advertised(
    values: Mapping[str, ConfigValue],
) -> tuple[dict[str, tuple[str, int]], dict[str, tuple[str, int]]]:
    bound = _addresses("listeners", values["listeners"])
    advertised = _addresses("advertised.listeners", values["advertised.listeners"] or ())
    unknown = advertised.keys() - bound.keys()
    if unknown:
        raise InvalidConfig(
            f"advertised.listeners has {', '.join(sorted(unknown))}, which is not in listeners"
        )
    return bound, advertised


def _addresses(key: str, listeners: ConfigValue) -> dict[str, tuple[str, int]]:
    assert isinstance(listeners, tuple)
    addresses: dict[str, tuple[str, int]] = {}
    taken: set[tuple[str, int]] = set()
    for text in listeners:
        match = _LISTENER.fullmatch(text)
        if match is None or int(match["port"]) > 65535:
            raise InvalidConfig(
                f"{key} has {text!r}: write NAME://HOST:PORT, for example PLAINTEXT://127.0.0.1:9092"
            )
        name, address = match["name"].upper(), (match["v6"] or match["host"] or "", int(match["port"]))
        if name in addresses:
            raise InvalidConfig(f"{key} has two listeners called {name}: give each a name of its own")
        if address[1] and address in taken:
            raise InvalidConfig(
                f"{key} has two listeners at {text.partition('://')[2]}: give each its own port"
            )
        taken.add(address)
        addresses[name] = address
    return addresses


def _advertise(bound: tuple[str, int], advertised: tuple[str, int] | None) -> tuple[str, int]:
    host, port = advertised or bound
    if host in ("0.0.0.0", "::"):
        if advertised is not None:
            raise InvalidConfig(
                f"advertised.listeners must not use {host}: give an address that clients can reach"
            )
        host = ""
    return host, port


def _protocol_map(text: str) -> dict[str, str]:
    protocols = {}
    for pair in filter(None, text.split(",")):
        name, _, protocol = pair.strip().rpartition(":")
        if not name or protocol.upper() not in _PROTOCOLS:
            raise InvalidConfig(
                f"listener.security.protocol.map has {pair!r}: "
                f"write NAME:PROTOCOL with one of {', '.join(_PROTOCOLS)}"
            )
        protocols[name.upper()] = protocol.upper()
    return protocols


def _protocol(name: str, protocols: Mapping[str, str]) -> str:
    protocol = protocols.get(name)
    if protocol is None:
        raise InvalidConfig(
            f"listener {name} has no protocol: add {name}:PLAINTEXT to listener.security.protocol.map"
        )
    return protocol


def parse_connection_overrides(values: Mapping[str, ConfigValue]) -> dict[str, int]:
    """How many connections an address may have, where it is not what others may; raises InvalidConfig."""
    found: dict[str, int] = {}
    for element in str(values[_OVERRIDES] or "").split(","):
        if not element.strip():
            continue
        # A host name would never match: connections are identified by address.
        match = _OVERRIDE.fullmatch(element.strip())
        if match is None:
            raise InvalidConfig(f"{_OVERRIDES}: '{element}' is not an address and a count, as in 10.0.0.1:20")
        found[match["v6"] or match["address"]] = int(match["count"])
    return found
