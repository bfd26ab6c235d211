"""Throttles of a reassignment, as in Kafka: a rate of brokers, for replicas that topic configs name.

`penstock.reassignment` has the requests and the memory of values that a throttle replaces. The controller
ends a throttle that no command has ended.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import TypeVar

from penstock.cli.direct import DirectLine, NoAnswer
from penstock.cli.failure import Failure
from penstock.metadata.rebalance import Move
from penstock.model.addresses import address_text
from penstock.model.ids import TopicPartition
from penstock.reassignment import requests
from penstock.reassignment.requests import AlreadyThrottled, Dialogue, ThrottleRefused
from penstock.wire.apis.describe_cluster import DESCRIBE_CLUSTER, DescribeClusterRequest

__all__ = ["remove_throttle", "set_throttle"]

T = TypeVar("T")


def set_throttle(line: DirectLine, moves: Iterable[Move], bytes_per_s: int) -> None:
    """Limit every broker to this many bytes per second for these moves, in each direction.

    If a broker refuses, those that have accepted are released again.
    """
    brokers, topics = _brokers(line), {move.partition.topic for move in moves}
    try:
        _carry_out(line, brokers, requests.set_throttle(brokers, topics, bytes_per_s))
    except AlreadyThrottled as error:
        raise Failure(str(error)) from error
    except ThrottleRefused as error:
        with suppress(ThrottleRefused):
            _carry_out(line, brokers, requests.end_throttle(brokers, topics))
        raise Failure(str(error)) from error


def remove_throttle(
    line: DirectLine, partitions: Iterable[TopicPartition], moving: Collection[TopicPartition]
) -> None:
    """End the throttle that `set_throttle` has set for moves of `partitions`.

    Topics that are still `moving` keep their throttle, and so do the rates that all moves share.
    """
    topics = {partition.topic for partition in partitions} - {partition.topic for partition in moving}
    brokers = _brokers(line)
    try:
        _carry_out(line, brokers, requests.end_throttle(brokers, topics, with_rates=not moving))
    except ThrottleRefused as error:
        raise Failure(str(error)) from error


def _brokers(line: DirectLine) -> dict[int, str]:
    cluster = line.send(DESCRIBE_CLUSTER, DescribeClusterRequest())
    return {broker.broker_id: address_text(broker.host, broker.port) for broker in cluster.brokers}


def _carry_out(line: DirectLine, addresses: dict[int, str], dialogue: Dialogue[T]) -> T:
    """Send the requests of a dialogue; returns its result."""
    try:
        ask = next(dialogue)
        while True:
            if ask.node is None:
                response = line.send(ask.api, ask.request)
            else:
                address = addresses[ask.node]
                response = line.send_each([address], ask.api, ask.request)[address]
                if response is None:
                    raise NoAnswer(f"broker {ask.node} at {address} has not answered {ask.api.name}")
            ask = dialogue.send(response)
    except StopIteration as end:
        result: T = end.value
        return result
