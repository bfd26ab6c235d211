"""Registered brokers and controllers in the cluster image."""

from __future__ import annotations

from typing import TypeAlias

from penstock.wire.metadata_records import RegisterBrokerRecord, RegisterControllerRecord

__all__ = ["BrokerImage", "ControllerImage", "FeatureRanges"]

#: levels (lowest, highest) that a node understands, by the feature's name
FeatureRanges: TypeAlias = dict[str, tuple[int, int]]


class BrokerImage:
    """A registered broker; `endpoints` maps a listener's name to (host, port), in the order registered.

    `epoch` is the offset of the registration. `shutdown_offset` is that of the record that began the broker's
    controlled shutdown: a node that has applied it knows that the broker leads nothing. `fenced_offset` is
    that of the record that fenced the broker, or of its first registration. It is not part of a snapshot.
    """

    __slots__ = (
        "cordoned",
        "endpoints",
        "epoch",
        "features",
        "fenced",
        "fenced_offset",
        "id",
        "in_controlled_shutdown",
        "incarnation",
        "log_directories",
        "machine",
        "protocols",
        "rack",
        "shutdown_offset",
    )

    def __init__(self, record: RegisterBrokerRecord, offset: int) -> None:
        self.id = record.broker_id
        self.incarnation = record.incarnation_id
        self.epoch = record.broker_epoch
        self.rack = record.rack
        self.fenced = record.fenced
        self.fenced_offset = offset
        self.in_controlled_shutdown = record.in_controlled_shutdown
        self.shutdown_offset = offset
        self.endpoints = {e.name: (e.host, e.port) for e in record.end_points}
        self.protocols = {e.name: e.security_protocol for e in record.end_points}
        self.features: FeatureRanges = {
            f.name: (f.min_supported_version, f.max_supported_version) for f in record.features
        }
        self.log_directories = list(record.log_dirs)
        self.cordoned = list(record.cordoned_log_dirs or ())
        #: `penstock.machine`, where it is set
        self.machine = record.machine

    @property
    def active(self) -> bool:
        """May lead partitions and be in their ISRs."""
        return not (self.fenced or self.in_controlled_shutdown)

    @property
    def host(self) -> str:
        """The machine it runs on, as it says; else the host of its first listener, the brokers' own."""
        if self.machine is not None:
            return self.machine
        return next(iter(self.endpoints.values()))[0] if self.endpoints else ""


class ControllerImage:
    """A node of the quorum that may become the active controller."""

    __slots__ = ("endpoints", "features", "id", "incarnation", "protocols")

    def __init__(self, record: RegisterControllerRecord) -> None:
        self.id = record.controller_id
        self.incarnation = record.incarnation_id
        self.endpoints = {e.name: (e.host, e.port) for e in record.end_points}
        self.protocols = {e.name: e.security_protocol for e in record.end_points}
        self.features: FeatureRanges = {
            f.name: (f.min_supported_version, f.max_supported_version) for f in record.features
        }
