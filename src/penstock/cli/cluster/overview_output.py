"""The overview of a cluster, as `penstock cluster status` prints it."""

from __future__ import annotations

from typing import Any, Final

__all__ = ["print_awaited", "print_brokers", "print_overview"]

_BROKER_COLUMNS: Final = (
    "broker",
    "address",
    "rack",
    "state",
    "leads",
    "replicas",
    "in_sync",
    "lag",
    "lag_s",
    "bytes",
    "quorum",
    "versions",
)


def print_overview(overview: dict[str, Any]) -> None:
    from penstock.cli.output import print_line

    print(
        f"cluster {overview['cluster_id']}  controller {_or(overview['controller'], 'none')}  "
        f"metadata.version {_or(overview['metadata_version'], 'unknown')}  "
        f"health {overview['health']['status']}"
    )
    for reason in overview["health"]["reasons"]:
        print_line(f"  {reason}", "bold red")
    for each in overview["raises"]:
        print_line(
            f"{each['feature']} {each['level']} can be raised to {each['to']}: `penstock cluster upgrade`",
            "yellow",
        )
    if overview["controller"] is None:
        print_line(
            "no controller: metadata cannot change until more than half of the voters run; this may be "
            "outdated:",
            "bold red",
        )
    print_brokers(overview["brokers"])
    _print_partitions(overview)
    for broker in overview["brokers"]:
        _print_broker_warnings(broker)
    for damage in overview["damaged"]:
        print_line(
            f"broker {damage['broker']}: {damage['topic']}-{damage['partition']} has {damage['ranges']} "
            f"damaged range(s)",
            "bold red",
        )


def print_brokers(brokers: list[dict[str, Any]]) -> None:
    """Print the brokers; if they have machines, these first, and the brokers by machine."""
    from penstock.cli.cluster.machines import MACHINE_COLUMNS, by_machine, machine_rows
    from penstock.cli.output import print_rows

    machines = machine_rows(brokers)
    columns: tuple[str, ...] = _BROKER_COLUMNS
    if machines:
        print_rows(machines, as_json=False, columns=MACHINE_COLUMNS, empty="")
        brokers, columns = by_machine(brokers), ("machine", *_BROKER_COLUMNS)
    print_rows(brokers, as_json=False, columns=columns, empty="no brokers")


def _print_partitions(overview: dict[str, Any]) -> None:
    """Print the number of partitions in each state, and the partitions that lack replicas."""
    from penstock.cli.cluster.healing import print_healing
    from penstock.cli.output import print_line, print_rows

    behind = {(p["topic"], p["partition"]) for p in overview["under_replicated"]}
    lacking = [
        p for p in overview["partitions"] if p["leader"] is None or (p["topic"], p["partition"]) in behind
    ]
    print_line(
        f"{len(overview['partitions'])} partitions, {len(overview['under_replicated'])} under-replicated, "
        f"{len(overview['leaderless'])} without a leader, {_or(overview['moving'], 'unknown')} moving "
        f"(penstock.balance {_or(overview['balance'], 'unknown')})",
        "bold red" if overview["leaderless"] else "yellow" if overview["under_replicated"] else "",
    )
    print_healing(overview["self_healing"])
    if lacking:
        shown = ("topic", "partition", "leader", "replicas", "isr")
        print_rows(lacking, as_json=False, columns=shown, empty="")
    _print_sharing(overview["sharing_a_machine"])
    print_awaited(overview)


def _print_sharing(partitions: list[dict[str, Any]]) -> None:
    """Print that partitions have several replicas on one machine: a machine that fails takes both."""
    from penstock.cli.output import print_line

    if partitions:
        first = partitions[0]
        print_line(
            f"{len(partitions)} partition(s) have several replicas on one machine, for example "
            f"{first['topic']}-{first['partition']} on brokers {', '.join(map(str, first['replicas']))}: "
            "a plan of `penstock partition reassign plan` moves them apart",
            "yellow",
        )


def _print_broker_warnings(broker: dict[str, Any]) -> None:
    """Print the states of one broker that an operator has to know."""
    from penstock.cli.output import print_line

    name = f"broker {broker['broker']}"
    for state in ("offline", "full"):
        for directory in broker[f"{state}_directories"]:
            print_line(f"{name}: the data directory {directory} is {state}", "bold red")
    if broker["quarantined_bytes"]:
        print(
            f"{name}: {broker['quarantined_bytes']} bytes of logs are in quarantine: "
            "`penstock log quarantine list` shows them"
        )
    if broker["metadata_diverged"]:
        print_line(f"{name}: {broker['metadata_diverged']}", "bold red")
    if broker["deletion_suspended"]:
        print(f"{name}: nothing is deleted by time: {broker['deletion_suspended']}")
        print("  if the time is right, `penstock cluster clock --confirm` ends the wait")


def print_awaited(overview: dict[str, Any]) -> None:
    """List the brokers to start if partitions have no leader: one of them has the acknowledged records."""
    not_up = {broker["broker"] for broker in overview["brokers"] if broker["state"] != "up"}
    awaited: dict[tuple[int, ...], int] = {}
    for partition in overview["leaderless"]:
        brokers = tuple(sorted(not_up.intersection(partition["replicas"])))
        awaited[brokers] = awaited.get(brokers, 0) + 1
    for brokers, count in awaited.items():
        who = f"broker(s) {', '.join(map(str, brokers))}, not up" if brokers else "see the controller's log"
        print(f"{count} partition(s) without a leader wait for replicas: {who}")


def _or(value: object, otherwise: str) -> str:
    return otherwise if value is None else str(value)
