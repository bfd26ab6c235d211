"""The table of the handlers for streams groups."""

from __future__ import annotations

from typing import Any, Final

from penstock.broker.app.stages import Stages
from penstock.broker.base.context import Handler
from penstock.broker.coordinators.streams_topics import StreamsTopics
from penstock.broker.handlers.streams_groups import StreamsGroupHandlers
from penstock.wire.api import Api
from penstock.wire.apis.streams_group_describe import STREAMS_GROUP_DESCRIBE
from penstock.wire.apis.streams_group_heartbeat import STREAMS_GROUP_HEARTBEAT

__all__ = ["streams_handlers"]

_FEATURE: Final = "streams.version"


def streams_handlers(stages: Stages) -> dict[Api[Any, Any], Handler]:
    """The handlers of streams groups, which the group coordinator serves."""
    image = stages.cluster.image
    topics = StreamsTopics(
        stages.cluster.topics.create,
        stages.coordinators.shares.persister.spawn,
        stages.world.clock,
        stages.listening.access,
    )
    groups = StreamsGroupHandlers(
        stages.coordinators.groups.runtime, topics, lambda: image.features.get(_FEATURE, 0) >= 1
    )
    return {
        STREAMS_GROUP_HEARTBEAT: groups.streams_group_heartbeat,
        STREAMS_GROUP_DESCRIBE: groups.streams_group_describe,
    }
