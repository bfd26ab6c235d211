"""Moves all replicas away from brokers: from one that is removed, or from all brokers of a machine."""

from __future__ import annotations

from collections.abc import Collection

from penstock.cli.cluster.moves import (
    EXCLUDED,
    Move,
    await_moves,
    elect_preferred,
    plan_moves,
    read_image,
    start_moves,
)
from penstock.cli.direct import DirectLine, refuse
from penstock.cli.failure import Failure
from penstock.metadata.configs import Operation
from penstock.metadata.image import BROKER, PartitionImage
from penstock.model.ids import TopicPartition
from penstock.wire.apis.incremental_alter_configs import (
    INCREMENTAL_ALTER_CONFIGS,
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

__all__ = ["carry_out", "drain", "evacuate", "keep_empty"]


def drain(
    line: DirectLine, machine: str | None, numbers: Collection[int], timeout_s: float
) -> tuple[list[int], int]:
    """Empty the brokers of a machine, or some brokers; returns their ids and the number of moves.

    The controller moves nothing back to them: they are added to penstock.balance.exclude.brokers.
    """
    brokers = read_image(line).brokers
    drained = sorted(
        {*numbers, *(id_ for id_, broker in brokers.items() if machine and broker.machine == machine)}
    )
    if machine and not any(broker.machine == machine for broker in brokers.values()):
        known = ", ".join(sorted({broker.machine for broker in brokers.values() if broker.machine})) or "none"
        raise Failure(f"no broker has the machine {machine!r} (penstock.machine); there are: {known}")
    for number in numbers:
        if number not in brokers:
            raise Failure(f"there is no broker {number}: `penstock cluster status` lists the brokers")
    moves = _evacuation(line, drained, timeout_s)
    keep_empty(line, drained)
    carry_out(line, moves, timeout_s)
    return drained, len(moves)


def keep_empty(line: DirectLine, numbers: Collection[int]) -> None:
    """Let the controller give no replicas to these brokers: no new partitions, no moves."""
    ids = ",".join(map(str, numbers))
    change = AlterableConfig(name=EXCLUDED, config_operation=Operation.APPEND, value=ids)
    resource = AlterConfigsResource(resource_type=BROKER, resource_name="", configs=[change])
    response = line.send(INCREMENTAL_ALTER_CONFIGS, IncrementalAlterConfigsRequest(resources=[resource]))
    for each in response.responses:
        refuse(each.error_code, each.error_message, EXCLUDED)


def evacuate(line: DirectLine, numbers: Collection[int], timeout_s: float) -> int:
    """Move all replicas away from these brokers; returns the number of moves."""
    moves = _evacuation(line, numbers, timeout_s)
    carry_out(line, moves, timeout_s)
    return len(moves)


def _evacuation(line: DirectLine, numbers: Collection[int], timeout_s: float) -> list[Move]:
    """The moves that empty these brokers; a Failure if a replica would have no place."""
    leaving = [number for number in numbers if number in read_image(line).brokers]
    if not leaving:
        return []
    held = _partitions_on(line, leaving)
    for name, partition in held.items():
        if partition.leader < 0:
            holders = ", ".join(map(str, partition.replicas))
            raise Failure(
                f"{name} has no leader to copy from: start the brokers of its replicas ({holders}), or "
                f"delete the topic"
            )
    # Moves in progress, perhaps of an earlier attempt: no plan changes partitions that are moving.
    await_moves(line, [name for name, partition in held.items() if partition.reassigning], timeout_s)
    moves = plan_moves(line, leaving=leaving)
    emptied = {move.partition for move in moves if not set(leaving).intersection(move.replicas)}
    for name, partition in _partitions_on(line, leaving).items():
        if name not in emptied:
            raise Failure(
                f"{name} has {len(partition.replicas)} replicas, and too few brokers that are up would be "
                f"left: add one first, or give the topic fewer replicas"
            )
    return moves


def carry_out(line: DirectLine, moves: list[Move], timeout_s: float) -> None:
    """Start moves, wait for their end, and let the preferred replicas lead."""
    if moves:
        partitions = [move.partition for move in moves]
        start_moves(line, moves)
        await_moves(line, partitions, timeout_s)
        elect_preferred(line, partitions)


def _partitions_on(line: DirectLine, numbers: Collection[int]) -> dict[TopicPartition, PartitionImage]:
    image = read_image(line)
    return {
        TopicPartition(image.topics_by_id[partition.topic_id].name, partition.index): partition
        for number in numbers
        for partition in image.partitions_on(number)
    }
