"""Creates the internal topics of streams groups, on behalf of the members that need them.

A heartbeat does not wait for the creation: the next one finds the topics in the cluster image. A topic that
could not be created is tried again after two heartbeat intervals; until then, members are told the reason.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, Final

from penstock.broker.base.access import Access
from penstock.broker.base.context import Context
from penstock.broker.base.logs import get_logger
from penstock.groups.streams.topology import InternalTopic, StatusCode
from penstock.metadata.topics import NewTopic
from penstock.model.errors import ApiError, TopicAlreadyExists
from penstock.ports import Clock
from penstock.security.acls import Operation, ResourceType
from penstock.wire.apis.streams_group_heartbeat import Status, StreamsGroupHeartbeatResponse

__all__ = ["StreamsTopics"]

#: topics with a recent error, and errors in a message
_ERRORS_MAX: Final = 1000
_SHOWN: Final = 3
log = get_logger("coordinator")


class StreamsTopics:
    """The topics that this broker is creating, and those that it could not create lately."""

    def __init__(
        self,
        create_topic: Callable[[NewTopic], Awaitable[None]],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        clock: Clock,
        access: Access | None,
    ) -> None:
        """`create_topic` raises the ApiError with which the controller refuses to create a topic.

        `access` is None without an authorizer.
        """
        self._create_topic = create_topic
        self._spawn = spawn
        self._clock = clock
        self._access = access
        self._under_way: set[str] = set()
        #: by topic: the reason, and until when it counts, in seconds of the monotonic clock
        self._errors: dict[str, tuple[str, float]] = {}

    def create(
        self,
        context: Context,
        topics: Sequence[InternalTopic],
        response: StreamsGroupHeartbeatResponse,
        heartbeat_ms: int,
    ) -> None:
        """Begin to create topics that are missing, or add to the status of the response why not."""
        denied = self._denied(context, topics)
        if denied:
            _explain(response, f"; Unauthorized to CREATE on topics {', '.join(denied)}.")
            return
        now = self._clock.monotonic()
        failed = {
            topic.name: self._errors[topic.name][0]
            for topic in topics
            if topic.name in self._errors and self._errors[topic.name][1] > now
        }
        for topic in topics:
            if topic.name not in failed and topic.name not in self._under_way:
                self._under_way.add(topic.name)
                self._spawn(self._create(topic, 2 * heartbeat_ms / 1000))
        if failed:
            shown = ", ".join(f"{name} ({failed[name]})" for name in sorted(failed)[:_SHOWN])
            more = f" and {len(failed) - _SHOWN} more" if len(failed) > _SHOWN else ""
            _explain(response, f"; Creation failed: {shown}{more}.")

    def _denied(self, context: Context, topics: Iterable[InternalTopic]) -> list[str]:
        """The topics that the member may not create."""
        access = self._access
        if access is None or access.allows_on_cluster(context, Operation.CREATE, quiet=True):
            return []
        names = [topic.name for topic in topics]
        return [
            name for name in names if not access.allows(context, Operation.CREATE, ResourceType.TOPIC, name)
        ]

    async def _create(self, topic: InternalTopic, retry_s: float) -> None:
        wanted = NewTopic(
            topic.name, topic.partitions, topic.replication_factor or -1, configs=dict(topic.configs)
        )
        try:
            await self._create_topic(wanted)
        except TopicAlreadyExists:
            log.debug("topic_exists", topic=topic.name)
        except ApiError as e:
            log.warning("internal_topic_not_created", topic=topic.name, error=e.code.name, reason=e.message)
            self._remember(topic.name, e.message or e.code.name, retry_s)
        finally:
            self._under_way.discard(topic.name)

    def _remember(self, name: str, reason: str, retry_s: float) -> None:
        now = self._clock.monotonic()
        self._errors.pop(name, None)
        self._errors[name] = (reason, now + retry_s)
        if len(self._errors) > _ERRORS_MAX:
            del self._errors[next(iter(self._errors))]


def _explain(response: StreamsGroupHeartbeatResponse, text: str) -> None:
    """Add a text to the status about missing internal topics."""
    statuses = response.status = [*(response.status or ())]
    for number, status in enumerate(statuses):
        if status.status_code == StatusCode.MISSING_INTERNAL_TOPICS:
            detail = status.status_detail + text
            statuses[number] = Status(status_code=status.status_code, status_detail=detail)
