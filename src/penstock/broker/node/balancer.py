"""Evens out the brokers' load while this node is the active controller (`penstock.balance`).

The balancer measures load by requesting the sizes of the logs from every broker (DescribeLogDirs) in each
round: the growth of a leader's log is the load of its producers. Reads are not measured, because Kafka's
protocol has no API for them. `metadata.balance` decides on one small step at a time. The next step waits
until the previous one is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from typing import Final

from penstock.broker.base.logs import get_logger
from penstock.broker.node.controller import Controller
from penstock.broker.node.peers import Peers
from penstock.broker.replica.throttles import rate_of_copies
from penstock.metadata.balance import LoadMeter, Measured, begin_step, next_step
from penstock.metadata.image import ClusterImage
from penstock.metadata.policy import Policy
from penstock.metadata.rebalance import Move
from penstock.model.config import BrokerConfig
from penstock.model.errors import PenstockError
from penstock.model.ids import TopicPartition
from penstock.ports import Clock
from penstock.wire.apis.describe_log_dirs import DESCRIBE_LOG_DIRS, DescribeLogDirsRequest
from penstock.wire.schema import Struct

__all__ = ["Balancer"]

log = get_logger("balancer")
_OFF: Final = "off"
_REPLICAS: Final = "replicas"


class Balancer:
    """Measures load and moves replicas while this node leads the quorum."""

    def __init__(
        self,
        config: BrokerConfig,
        image: ClusterImage,
        controller: Controller,
        peers: Peers,
        clock: Clock,
        policy: Callable[[], Policy],
    ) -> None:
        self._config = config
        self._image = image
        self._controller = controller
        self._peers = peers
        self._clock = clock
        self._policy = policy
        self._task: asyncio.Task[None] | None = None

    def leader_changed(self, leader_id: int) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None
        if leader_id == self._config.node_id:
            self._task = asyncio.get_running_loop().create_task(self._serve())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _serve(self) -> None:
        meter = LoadMeter()
        while True:
            await asyncio.sleep(self._config.penstock_balance_interval_seconds)
            if self._config.penstock_balance == _OFF:
                # Old measurements must not count when balancing is switched on.
                meter = LoadMeter()
                continue
            try:
                await self._balance(meter)
            except PenstockError as e:
                # A broker does not respond, or a disk is full. The next round tries again.
                log.warning("not_balanced", error=str(e))

    async def _balance(self, meter: LoadMeter) -> None:
        meter.measured(await self._sizes(), self._clock.monotonic() * 1000)
        if meter.is_ready:
            step = await self._controller.change(lambda: self._decide(meter))
            if step is not None:
                load = round(meter.loads.get(step.partition, 0.0))
                log.info("balanced", partition=str(step.partition), replicas=step.replicas, bytes_per_s=load)

    def _decide(self, meter: LoadMeter) -> tuple[list[Struct], Move | None]:
        step = next_step(
            self._image,
            meter.loads,
            tolerance=self._config.penstock_balance_tolerance_percent / 100,
            replicas=self._config.penstock_balance == _REPLICAS,
            copied_per_s=rate_of_copies(self._config, by_itself=True) or inf,
            even_numbers=self._config.penstock_balance_new_brokers,
        )
        return ([], None) if step is None else (begin_step(self._image, self._policy(), step), step)

    async def _sizes(self) -> dict[TopicPartition, Measured]:
        """The log size of each partition's leader; PeerGone if a broker does not respond."""
        timeout_s = self._config.controller_quorum_request_timeout_ms / 1000
        held: dict[TopicPartition, Measured] = {}
        for node in [broker.id for broker in self._image.brokers.values() if broker.active]:
            request = DescribeLogDirsRequest(topics=None)
            response = await self._peers.get(node, "balance").send(DESCRIBE_LOG_DIRS, request, timeout_s)
            for directory in response.results:
                for topic in directory.topics:
                    for partition in topic.partitions:
                        if self._leads(node, topic.name, partition.partition_index):
                            name = TopicPartition(topic.name, partition.partition_index)
                            held[name] = Measured(node, partition.partition_size)
        return held

    def _leads(self, node: int, topic: str, index: int) -> bool:
        known = self._image.topics.get(topic)
        return known is not None and index in known.partitions and known.partitions[index].leader == node
