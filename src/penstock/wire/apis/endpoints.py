"""Structures that several inter-broker APIs share: where a node can be reached, what it understands."""

from __future__ import annotations

from penstock.wire.schema import Struct, int16, int32, string, uint16


class NodeEndpoint(Struct):
    """Where a node of the quorum is reached; answers carry the leader's."""

    node_id: int = int32()
    host: str = string()
    port: int = uint16()


class Endpoint(Struct):
    """One listener of a controller, by name."""

    name: str = string()
    host: str = string()
    port: int = uint16()


class Listener(Struct):
    """One listener as a node registers it."""

    name: str = string()
    host: str = string()
    port: int = uint16()
    security_protocol: int = int16()


class Feature(Struct):
    """The levels of a feature that a node understands."""

    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


class KRaftVersionFeature(Struct):
    """The levels of `kraft.version` that a voter understands."""

    min_supported_version: int = int16()
    max_supported_version: int = int16()
