"""Reassignments in a user's name: throttles, the start of many moves, and what follows their end.

`penstock.reassignment` has the requests of throttles, which the command line sends as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from penstock.console.kafka.cluster import Cluster, NotReachable, Refused, check, gap_of_error
from penstock.console.kafka.placement import elect_preferred, list_moves
from penstock.console.views.knowledge import Gap, in_words
from penstock.console.views.samples import Key
from penstock.model.errors import ErrorCode, PenstockError
from penstock.model.steps import slices
from penstock.reassignment.requests import (
    AlreadyThrottled,
    BrokerLimits,
    Dialogue,
    ThrottleRefused,
    broker_limits,
    describe_broker,
    end_throttle,
    set_throttle,
)
from penstock.wire.apis.alter_partition_reassignments import (
    ALTER_PARTITION_REASSIGNMENTS,
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.wire.apis.describe_configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from penstock.wire.apis.incremental_alter_configs import (
    INCREMENTAL_ALTER_CONFIGS,
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

__all__ = [
    "MovesFollower",
    "NotStarted",
    "carry_out",
    "excluded_brokers",
    "keep_empty",
    "limit",
    "read_limits",
    "release",
    "start_moves",
]

T = TypeVar("T")
_BROKER: Final = 4
_APPEND: Final = 2
#: the config with the brokers that receive no replicas automatically
_EXCLUDED: Final = "penstock.balance.exclude.brokers"
#: partitions in one request: encoding more would hold up the pages of other users
_AT_ONCE: Final = 500
_PAUSE_S: Final = 2.0


class NotStarted(NamedTuple):
    """A move that the controller has refused."""

    topic: str
    partition: int
    reason: str


async def carry_out(cluster: Cluster, dialogue: Dialogue[T]) -> T:
    """Send the requests of a dialogue; returns its result."""
    try:
        ask = next(dialogue)
        while True:
            if ask.node is None:
                response = await cluster.send(ask.api, ask.request, changes=ask.changes)
            else:
                response = await cluster.send_to(ask.node, ask.api, ask.request)
            ask = dialogue.send(response)
    except StopIteration as end:
        result: T = end.value
        return result
    except ThrottleRefused as error:
        raise _refused(error) from error
    except AlreadyThrottled as error:
        raise Refused("ALREADY_THROTTLED", str(error)) from error


def _refused(error: ThrottleRefused) -> Refused:
    try:
        name = ErrorCode(error.code).name
    except ValueError:
        name = f"ERROR_{error.code}"
    return Refused(name, str(error))


async def read_limits(cluster: Cluster, brokers: Iterable[int]) -> dict[int, BrokerLimits | Gap]:
    """The rates of brokers, or why they are not known."""
    answers = await cluster.try_each(
        DESCRIBE_CONFIGS, {broker: describe_broker(broker) for broker in brokers}
    )
    found: dict[int, BrokerLimits | Gap] = {}
    for broker, answer in answers.items():
        if isinstance(answer, PenstockError):
            found[broker] = gap_of_error(answer)
            continue
        try:
            found[broker] = broker_limits(answer)
        except ThrottleRefused as error:
            found[broker] = gap_of_error(_refused(error))
    return found


async def limit(cluster: Cluster, brokers: Collection[int], topics: Collection[str], rate: int) -> None:
    """Throttle moves; if a broker refuses, those that have accepted are released again."""
    try:
        await carry_out(cluster, set_throttle(brokers, topics, rate))
    except Refused as error:
        if error.name != "ALREADY_THROTTLED":
            await release(cluster, brokers, topics)
        raise


async def release(cluster: Cluster, brokers: Collection[int], topics: Collection[str]) -> int:
    """End the throttle of moves; returns the number of brokers and topics that had one."""
    return await carry_out(cluster, end_throttle(brokers, topics))


async def excluded_brokers(cluster: Cluster, controller: int) -> list[int]:
    """Brokers that receive no replicas automatically, as the controller has them; none of Apache Kafka's."""
    wanted = DescribeConfigsResource(
        resource_type=_BROKER, resource_name=str(controller), configuration_keys=[_EXCLUDED]
    )
    request = DescribeConfigsRequest(resources=[wanted])
    (result,) = (await cluster.send_to(controller, DESCRIBE_CONFIGS, request)).results
    check(result.error_code, result.error_message, f"configs of broker {controller}")
    text = next((each.value for each in result.configs if each.name == _EXCLUDED), None) or ""
    return [int(each) for each in text.split(",") if each.strip()]


async def keep_empty(cluster: Cluster, brokers: Collection[int]) -> None:
    """Let the controller give no replicas to these brokers: no new partitions, no moves."""
    ids = ",".join(map(str, sorted(brokers)))
    change = AlterableConfig(name=_EXCLUDED, config_operation=_APPEND, value=ids)
    resource = AlterConfigsResource(resource_type=_BROKER, resource_name="", configs=[change])
    request = IncrementalAlterConfigsRequest(resources=[resource])
    response = await cluster.send(INCREMENTAL_ALTER_CONFIGS, request, changes=True)
    for each in response.responses:
        check(each.error_code, each.error_message, _EXCLUDED)


async def start_moves(cluster: Cluster, wanted: Mapping[Key, Sequence[int] | None]) -> list[NotStarted]:
    """Start moves, or cancel those whose replicas are None; returns those that the controller refuses.

    Refused if the controller refuses a whole request, such as that of a user without the right.
    """
    refused: list[NotStarted] = []
    for some in slices(sorted(wanted.items()), _AT_ONCE):
        by_topic: dict[str, list[ReassignablePartition]] = {}
        for (topic, partition), replicas in some:
            own = ReassignablePartition(
                partition_index=partition, replicas=None if replicas is None else list(replicas)
            )
            by_topic.setdefault(topic, []).append(own)
        topics = [ReassignableTopic(name=name, partitions=found) for name, found in by_topic.items()]
        request = AlterPartitionReassignmentsRequest(timeout_ms=int(cluster.timeout_s * 1000), topics=topics)
        response = await cluster.send(ALTER_PARTITION_REASSIGNMENTS, request, changes=True)
        check(response.error_code, response.error_message, "the reassignment")
        refused += [
            NotStarted(each.name, p.partition_index, p.error_message or in_words(p.error_code))
            for each in response.responses
            for p in each.partitions
            if p.error_code
        ]
    return refused


class MovesFollower:
    """Waits for the end of moves that one user has started, elects preferred leaders, ends the throttle.

    Why, although controllers end throttles: Apache Kafka's do not, and ours later. It has the connections of
    its user, and ends with the session. Owned by the thread of the event loop.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._partitions: set[Key] = set()
        #: the topics whose moves are throttled
        self._throttled: set[str] = set()
        self._task: asyncio.Task[None] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether moves of this user are waited for."""
        return self._task is not None and not self._task.done()

    def follow(self, partitions: Iterable[Key], throttled: Iterable[str]) -> None:
        """Add moves that were started, and topics that were throttled; one task follows all of them."""
        self._partitions.update(partitions)
        self._throttled.update(throttled)
        if not self.is_busy:
            self._task = asyncio.create_task(self._run())

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_PAUSE_S)
            try:
                if await self._is_over():
                    return
            except NotReachable:
                # Brokers are restarting, perhaps. The moves go on without this console.
                if self._cluster.is_rejected:
                    return
            except PenstockError:
                # The user has lost the right, or has logged out: the controller ends the throttle.
                return

    async def _is_over(self) -> bool:
        response = await list_moves(self._cluster)
        moving = {(topic.name, p.partition_index) for topic in response.topics for p in topic.partitions}
        if moving & self._partitions:
            return False
        ended, self._partitions = self._partitions, set()
        for some in slices(sorted(ended), _AT_ONCE):
            try:
                await elect_preferred(self._cluster, some)
            except Refused:
                # The first replica of one may be behind. Brokers elect preferred leaders every few minutes.
                continue
        # The rates are those of all moves, also of other users.
        if moving and self._throttled:
            return False
        if self._throttled:
            brokers = [broker.node_id for broker in (await self._cluster.metadata([])).brokers]
            await release(self._cluster, brokers, self._throttled)
            self._throttled.clear()
        return not self._partitions
