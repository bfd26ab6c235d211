"""Names of services and pods, and the messages in which they are asked for. Without I/O.

A service has its own address; a pod of a headless service has the name that its set gave it. Only questions
for IPv4 addresses have answers.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

__all__ = ["Names", "known_names", "respond"]

Names = Mapping[str, Sequence[str]]

_SUFFIX: Final = "svc.cluster.local"
_HEADLESS: Final = "None"
_HEADER: Final = struct.Struct(">6H")
_QUESTION: Final = struct.Struct(">2H")
_RECORD: Final = struct.Struct(">3HIH")
#: an authoritative answer that was not asked for recursion
_ANSWERED: Final = 0x8580
_NO_SUCH_NAME: Final = 3
_ADDRESS: Final = 1
_ANY_CLASS: Final = 1
#: where the name of the question is in the message
_ITS_NAME: Final = 0xC00C
#: pods come back with other addresses, so an answer is valid for a second
_SECONDS: Final = 1


def known_names(services: Iterable[Any], slices: Iterable[Any]) -> dict[str, list[str]]:
    """Addresses by name, from the services and endpoint slices of the API."""
    found: dict[str, list[str]] = {}
    for service in services:
        place, address = service["metadata"], service["spec"].get("clusterIP", _HEADLESS)
        if address != _HEADLESS:
            found[f"{place['name']}.{place['namespace']}.{_SUFFIX}"] = [address]
    for each in slices:
        place = each["metadata"]
        service = place.get("labels", {}).get("kubernetes.io/service-name", "")
        for endpoint in each.get("endpoints") or ():
            if endpoint.get("hostname"):
                name = f"{endpoint['hostname']}.{service}.{place['namespace']}.{_SUFFIX}"
                found.setdefault(name, []).extend(endpoint["addresses"])
    return found


def respond(query: bytes, names: Names) -> bytes | None:
    """The response to a query; None if it is not one with a whole question."""
    if len(query) < _HEADER.size:
        return None
    number, flags, questions, *_ = _HEADER.unpack_from(query)
    end, labels = _HEADER.size, []
    if flags & 0x8000 or questions < 1:
        return None
    while end < len(query) and query[end]:
        labels.append(query[end + 1 : end + 1 + query[end]].decode("latin-1").lower())
        end += 1 + query[end]
    end += 1 + _QUESTION.size
    if end > len(query):
        return None
    kind, _ = _QUESTION.unpack_from(query, end - _QUESTION.size)
    addresses = names.get(".".join(labels))
    answers = addresses if addresses and kind == _ADDRESS else ()
    flags = _ANSWERED | (_NO_SUCH_NAME if addresses is None else 0)
    records = [
        _RECORD.pack(_ITS_NAME, _ADDRESS, _ANY_CLASS, _SECONDS, 4) + socket.inet_aton(address)
        for address in answers
    ]
    head = _HEADER.pack(number, flags, 1, len(records), 0, 0)
    return b"".join([head, query[_HEADER.size : end], *records])
