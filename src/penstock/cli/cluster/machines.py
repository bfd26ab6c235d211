"""The brokers of `penstock cluster status` by machine (penstock.machine)."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any, Final

from penstock.model.ids import TopicPartition

__all__ = ["MACHINE_COLUMNS", "by_machine", "machine_rows", "sharing_a_machine"]

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


def sharing_a_machine(
    partitions: Sequence[dict[str, Any]], brokers: Sequence[dict[str, Any]], moving: Container[TopicPartition]
) -> list[dict[str, Any]]:
    """The partitions with several replicas on one machine, as a user may assign them.

    A partition that moves may have the old and the new replica on one machine for a while.
    """
    machines = {broker["broker"]: broker["machine"] for broker in brokers}
    found = []
    for partition in partitions:
        if TopicPartition(partition["topic"], partition["partition"]) not in moving:
            used = [machines[node] for node in partition["replicas"] if machines.get(node) is not None]
            if len(set(used)) < len(used):
                found.append(partition)
    return found


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
