"""Hosts that lack GPUs: fewer than they had, fewer than other hosts of the model have, or none any more.

A missing GPU sends no telemetry, and a missing host sends none for all its GPUs, so no threshold can find
them. So a host is judged by what the file of thresholds says of it, or else by its own past and by its peers.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from penstock.telemetry.inventory import Inventory
from penstock.telemetry.pipeline.columns import Ints, Mask
from penstock.telemetry.pipeline.detectors.peers import NO_TEXT, Peers
from penstock.telemetry.pipeline.detectors.rules import Finding
from penstock.telemetry.thresholds import MissingGpu, Thresholds

__all__ = ["missing_gpu"]

_NAMED_MOST: Final = 8


class _Hosts(NamedTuple):
    """By host: the GPUs that are heard, the most that it had at one time, and what its peers have."""

    present: Ints
    past: Ints
    #: 0 where the host is not comparable
    usual: Ints
    #: by the file of thresholds; -1 where it says nothing
    named: Ints

    @property
    def expected(self) -> Ints:
        most: Ints = np.where(self.named < 0, np.maximum(self.past, self.usual), self.named)
        return most


def missing_gpu(peers: Peers, now_ms: int, thresholds: Thresholds) -> Finding:
    """Judged for hosts, by the time of others; a host's first GPU stands for it."""
    limit = thresholds.missing_gpu
    codes, first, host = np.unique(peers.codes["hostname"], return_index=True, return_inverse=True)
    is_present = peers.is_present(now_ms, limit.absent_s)
    inventory = Inventory(thresholds.hosts)
    named = np.full(len(codes), -1, np.int64)
    for own, gpu in enumerate(first if thresholds.hosts else ()):
        gpus = inventory.of(peers.text("hostname", int(gpu))).gpus
        named[own] = -1 if gpus is None else gpus
    hosts = _counted(peers, host, len(codes), is_present, now_ms, limit)._replace(named=named)
    lacking = hosts.expected - hosts.present
    known = np.zeros(len(host), dtype=bool)
    known[first[codes != NO_TEXT]] = True

    def evidence(gpu: int) -> str:
        own = int(host[gpu])
        has, expected = int(hosts.present[own]), int(hosts.expected[own])
        counted = f"{has} of {expected} GPUs" if has else f"none of its {expected} GPUs is heard"
        rack = inventory.of(peers.text("hostname", gpu)).rack
        counted += f", rack {rack}" if rack is not None else ""
        if expected == hosts.named[own] > hosts.past[own]:
            return f"{counted}; the file of thresholds has {expected}"
        if expected > hosts.past[own]:
            return f"{counted}; hosts of {peers.text('model', gpu)} have {expected}"
        gone = np.flatnonzero((host == own) & peers.is_gpu & ~is_present & _is_past(peers, now_ms, limit))
        names = [_named(peers, each) for each in gone[:_NAMED_MOST]]
        return f"{counted}; missing: {', '.join(names)}" if has else counted

    return Finding(known & (lacking > 0)[host], known, lacking[host].astype(np.float64), evidence=evidence)


def _named(peers: Peers, gpu: int) -> str:
    """A GPU with its place, as far as that is known."""
    place = [text for name in ("device", "pci_bus_id") if (text := peers.text(name, gpu))]
    return peers.gpu_ids[gpu] + (f" ({', '.join(place)})" if place else "")


def _is_past(peers: Peers, now_ms: int, limit: MissingGpu) -> Mask:
    """A GPU that was heard in this time should still be there."""
    past: Mask = now_ms - peers.seen_ms <= limit.past_s * 1000
    return past


def _counted(
    peers: Peers, host: Ints, count: int, is_present: Mask, now_ms: int, limit: MissingGpu
) -> _Hosts:
    present = np.bincount(host, weights=is_present, minlength=count).astype(np.int64)
    past = np.zeros(count, np.int64)
    # A GPU that is gone keeps the number of GPUs that its host had with it.
    np.maximum.at(past, host, np.where(_is_past(peers, now_ms, limit), peers.companions, 0))
    usual = _usual(peers, host, present, is_present, limit)
    return _Hosts(present, past, usual, np.full(count, -1, np.int64))


def _usual(peers: Peers, host: Ints, present: Ints, is_present: Mask, limit: MissingGpu) -> Ints:
    """The number of GPUs that hosts of the same model have, where a host has most of them.

    Hosts with half of them or fewer are of another shape, such as virtual machines.
    """
    model = np.full(len(present), NO_TEXT, np.int64)
    model[host[is_present]] = peers.codes["model"][is_present]
    usual = np.zeros(len(present), np.int64)
    for code in np.unique(model[model != NO_TEXT]):
        own = np.flatnonzero(model == code)
        sizes, numbers = np.unique(present[own], return_counts=True)
        most = int(numbers.argmax())
        if len(own) >= limit.hosts_min and numbers[most] >= limit.hosts_min_share * len(own):
            usual[own] = np.where(present[own] * 2 > sizes[most], sizes[most], 0)
    return usual
