"""Moves all replicas away from brokers: from one that is removed, or from all brokers of a machine.

Topics and partitions may be created while replicas are moved. So the brokers are excluded from placement
before the moves are planned, and plans are made until no replica is left.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from penstock.cli.cluster.moves import (
    EXCLUDED,
    Move,
    await_moves,
    elect_preferred,
    excluded_brokers,
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

__all__ = ["carry_out", "check_evacuation", "drain", "evacuate", "keep_empty", "kept_empty", "receive_again"]

_PAUSE_S: Final = 0.1


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
    check_evacuation(line, drained, timeout_s)
    keep_empty(line, drained)
    return drained, evacuate(line, drained, timeout_s)


def check_evacuation(
    line: DirectLine, numbers: Collection[int], timeout_s: float, avoided: Collection[int] = ()
) -> None:
    """Raise a Failure, before anything is changed, if a replica on these brokers would have no place."""
    _evacuation(line, numbers, timeout_s, avoided)


def keep_empty(line: DirectLine, numbers: Collection[int]) -> None:
    """Let the controller give no replicas to these brokers: no new partitions, no moves."""
    _alter_excluded(line, Operation.APPEND, numbers)


def receive_again(line: DirectLine, numbers: Collection[int]) -> None:
    """Let the controller give replicas to these brokers again."""
    _alter_excluded(line, Operation.SUBTRACT, numbers)


@contextmanager
def kept_empty(line: DirectLine, number: int) -> Iterator[None]:
    """Let the controller give no replicas to a broker within the block, which removes it.

    If the block fails, the broker may receive replicas as before. If it succeeds, the next broker with this
    id may.
    """
    was_excluded = number in excluded_brokers(line)
    keep_empty(line, [number])
    try:
        yield
    except BaseException:
        if not was_excluded:
            with suppress(Failure):
                receive_again(line, [number])
        raise
    receive_again(line, [number])


def _alter_excluded(line: DirectLine, operation: Operation, numbers: Collection[int]) -> None:
    ids = ",".join(map(str, numbers))
    change = AlterableConfig(name=EXCLUDED, config_operation=operation, value=ids)
    resource = AlterConfigsResource(resource_type=BROKER, resource_name="", configs=[change])
    response = line.send(INCREMENTAL_ALTER_CONFIGS, IncrementalAlterConfigsRequest(resources=[resource]))
    for each in response.responses:
        refuse(each.error_code, each.error_message, EXCLUDED)


def evacuate(
    line: DirectLine, numbers: Collection[int], timeout_s: float, avoided: Collection[int] = ()
) -> int:
    """Move all replicas away from these brokers; returns the number of moves. None goes to an avoided one.

    Partitions that are created meanwhile are moved, too. A Failure if brokers still have some in the end.
    """
    deadline = time.monotonic() + timeout_s
    count = 0
    while moves := _evacuation(line, numbers, timeout_s, avoided):
        carry_out(line, moves, timeout_s)
        count += len(moves)
        moved = {move.partition for move in moves}
        # The bootstrap broker learns of the end of a move later than the controller.
        while _partitions_on(line, numbers).keys() & moved and time.monotonic() <= deadline:
            time.sleep(_PAUSE_S)
        left = _partitions_on(line, numbers)
        if left and time.monotonic() > deadline:
            raise Failure(
                f"{len(left)} partitions, for example {next(iter(left))}, are still on the brokers after "
                f"{timeout_s:g} s: repeat the command"
            )
    return count


def _evacuation(
    line: DirectLine, numbers: Collection[int], timeout_s: float, avoided: Collection[int]
) -> list[Move]:
    """The moves that empty these brokers, none if they are empty; a Failure if a replica would have no place.

    Waits for moves in progress.
    """
    held = _partitions_on(line, numbers)
    if not held:
        return []
    for name, partition in held.items():
        if partition.leader < 0:
            holders = ", ".join(map(str, partition.replicas))
            raise Failure(
                f"{name} has no leader to copy from: start the brokers of its replicas ({holders}), or "
                f"delete the topic"
            )
    # Moves in progress, perhaps of an earlier attempt: no plan changes partitions that are moving.
    await_moves(line, [name for name, partition in held.items() if partition.reassigning], timeout_s)
    held = _partitions_on(line, numbers)
    if not held:
        return []
    brokers = read_image(line).brokers
    leaving = [number for number in numbers if number in brokers]
    moves = plan_moves(line, leaving=leaving, avoided=avoided)
    emptied = {move.partition for move in moves if not set(leaving).intersection(move.replicas)}
    # Brokers of one machine count as one: they hold one replica of a partition.
    places = "machines" if any(broker.machine for broker in brokers.values()) else "brokers"
    for name, partition in held.items():
        if name not in emptied:
            raise Failure(
                f"{name} has {len(partition.replicas)} replicas, and too few {places} that are up would be "
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
    """The partitions with replicas on those of the brokers that are registered."""
    image = read_image(line)
    return {
        TopicPartition(image.topics_by_id[partition.topic_id].name, partition.index): partition
        for number in numbers
        if number in image.brokers
        for partition in image.partitions_on(number)
    }
