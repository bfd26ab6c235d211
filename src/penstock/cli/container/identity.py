"""The configs of a broker that follow from its place in a StatefulSet. Without I/O.

All pods of a StatefulSet have the same config file. What differs follows from the name of the pod, which ends
with its ordinal: the id of the broker, its role in the metadata quorum, and its advertised addresses.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from penstock.cli.failure import misused
from penstock.model.config.layers import MAX_VOTERS

__all__ = ["Pod", "broker_settings", "memory_settings", "ordinal_of"]

_NAME: Final = re.compile(r"(?P<set>.+)-(?P<ordinal>[0-9]+)")
_FIELD: Final = re.compile(r"\{(?:(?P<base>[0-9]+)\+)?(?P<name>[a-z_]+)\}")
_MIB: Final = 1 << 20
#: the part of the memory of a container that requests may use, and the least that is useful
_REQUESTS_PART: Final = 4
_REQUESTS_MIN: Final = 16 * _MIB
_REQUEST_MEMORY: Final = "queued.max.request.bytes"
_LARGEST_REQUEST: Final = "socket.request.max.bytes"
_LARGEST_DEFAULT: Final = 100 * _MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod of a StatefulSet, and what its broker has to know of the others."""

    name: str
    #: the DNS name of the headless service
    domain: str
    #: pods with a lower ordinal vote in the metadata quorum
    voters: int
    internal_port: int
    #: of the node, as clients outside of the cluster reach it
    host_ip: str = ""

    @property
    def ordinal(self) -> int:
        return ordinal_of(self.name)


def ordinal_of(pod: str) -> int:
    """The ordinal at the end of the name of a pod."""
    match = _NAME.fullmatch(pod)
    if match is None:
        misused(f"--pod {pod!r} is not the name of a pod of a StatefulSet, such as penstock-0")
    return int(match["ordinal"])


def broker_settings(pod: Pod, advertise: Iterable[str], rack: str | None) -> dict[str, str]:
    """The configs of the broker of this pod.

    `advertise` has an address for each listener, such as `CLIENT://{pod}.{domain}:9092`. `{id}`, `{host_ip}`
    and a port such as `{30000+id}` are known, too.
    """
    if not 1 <= pod.voters <= MAX_VOTERS:
        misused(f"--voters {pod.voters} is not between 1 and {MAX_VOTERS}")
    match = _NAME.fullmatch(pod.name)
    base = match["set"] if match else ""
    voters = (f"{id_}@{base}-{id_}.{pod.domain}:{pod.internal_port}" for id_ in range(pod.voters))
    fields = {"pod": pod.name, "id": str(pod.ordinal), "domain": pod.domain, "host_ip": pod.host_ip}
    settings = {
        "node.id": fields["id"],
        "controller.quorum.voters": ",".join(voters),
        "process.roles": "broker,controller" if pod.ordinal < pod.voters else "broker",
    }
    addresses = [_filled(each, fields) for each in advertise]
    if addresses:
        settings["advertised.listeners"] = ",".join(addresses)
    if rack:
        settings["broker.rack"] = rack
    return settings


def memory_settings(limit: int | None, given: Mapping[str, str]) -> dict[str, str]:
    """Bounds of the memory for requests, if the limit of the container is too low for the defaults.

    A config that is given stays.
    """
    if limit is None or _REQUEST_MEMORY in given:
        return {}
    memory = max(_REQUESTS_MIN, limit // _REQUESTS_PART)
    if memory >= 2 * _LARGEST_DEFAULT:
        return {}
    settings = {_REQUEST_MEMORY: str(memory)}
    if _LARGEST_REQUEST not in given:
        settings[_LARGEST_REQUEST] = str(min(_LARGEST_DEFAULT, memory))
    elif int(given[_LARGEST_REQUEST]) > memory:
        settings[_REQUEST_MEMORY] = given[_LARGEST_REQUEST]
    return settings


def _filled(template: str, fields: Mapping[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        found = fields.get(match["name"])
        if found is None:
            misused(f"--advertise {template!r} has {match[0]}; known are {', '.join(sorted(fields))}")
        if not found:
            misused(f"--advertise {template!r} needs the {match['name'].replace('_', ' ')}, which is not set")
        if match["base"] is None:
            return found
        if match["name"] != "id":
            misused(f"--advertise {template!r}: only an id can be added to a number")
        return str(int(match["base"]) + int(found))

    return _FIELD.sub(value, template)
