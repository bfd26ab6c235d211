"""The brokers of `penstock cluster status` by machine (penstock.machine)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

__all__ = ["MACHINE_COLUMNS", "by_machine", "machine_rows"]

MACHINE_COLUMNS: Final = (
    "machine",
    "rack",
    "brokers",
    "up",
    "leads",
    "replicas",
    "in_sync",
    "bytes",
    "quorum",
)


def by_machine(brokers: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Brokers in the order of machines and ids; those without a machine come last."""
    return sorted(brokers, key=lambda each: (each["machine"] is None, each["machine"] or "", each["broker"]))


def machine_rows(brokers: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row for each machine with the sums of its brokers; none if no broker has a machine."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for broker in by_machine(brokers):
        if broker["machine"] is not None:
            groups.setdefault(broker["machine"], []).append(broker)
    return [_row(machine, members) for machine, members in groups.items()]


def _row(machine: str, members: Sequence[dict[str, Any]]) -> dict[str, Any]:
    racks = sorted({member["rack"] for member in members if member["rack"] is not None})
    votes = [member["quorum"] for member in members if member["quorum"] in ("leader", "voter")]
    return {
        "machine": machine,
        "rack": ",".join(racks) or None,
        "brokers": len(members),
        "up": sum(member["state"] == "up" for member in members),
        **{name: sum(member[name] for member in members) for name in ("leads", "replicas", "in_sync")},
        "bytes": sum(member["bytes"] or 0 for member in members),
        "quorum": votes[0] if len(votes) == 1 else f"{len(votes)} voters" if votes else None,
    }
