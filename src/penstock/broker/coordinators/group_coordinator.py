"""The group coordinator of a broker: `__consumer_offsets`, its shards, and the configs that they apply."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from penstock.broker.base.logs import get_logger, limited_warnings
from penstock.broker.base.regexes import Regexes
from penstock.broker.coordinators.host_settings import HostSettings
from penstock.broker.coordinators.internal_topic import InternalTopic
from penstock.broker.coordinators.runtime import CoordinatorRuntime
from penstock.broker.coordinators.shard_log import Loader
from penstock.broker.coordinators.share_persister import SharePersister
from penstock.broker.replica.partitions import Partitions
from penstock.broker.replica.txn_markers import Marker, check_marker
from penstock.coordination.outbox import Effect, EndMarker
from penstock.groups.ledger import Environment
from penstock.groups.settings import GroupSettings
from penstock.groups.shard import GroupShard
from penstock.groups.share_state import InitializeShareState
from penstock.groups.targets import ReportRefusedTarget
from penstock.groups.topic_regexes import ResolveTopicRegexes
from penstock.metadata.configs import GROUP
from penstock.metadata.image import TOPIC, ClusterImage
from penstock.metadata.topics import NewTopic
from penstock.model.config import BrokerConfig
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import OFFSETS_TOPIC
from penstock.net.deferred import Deferred
from penstock.ports import Clock, Rng
from penstock.wire.apis.write_txn_markers import WritableTxnMarkerPartitionResult
from penstock.wire.metadata_records import ConfigRecord
from penstock.wire.schema import Struct

__all__ = ["GroupCoordinator"]

_UUID_BYTES: Final = 16
#: topics whose rights are checked in one turn of the event loop
_CHECKED_AT_ONCE: Final = 500
log = get_logger("coordinator")


class GroupCoordinator:
    """Composes the runtime of group shards. Handlers submit their requests to `runtime`."""

    def __init__(
        self,
        config: BrokerConfig,
        image: ClusterImage,
        partitions: Partitions,
        clock: Clock,
        rng: Rng,
        loader: Loader,
        create_topic: Callable[[NewTopic], Awaitable[None]],
        is_clock_trusted: Callable[[], bool],
        persister: SharePersister,
        regexes: Regexes,
    ) -> None:
        """`create_topic` raises the ApiError with which the controller refuses to create a topic."""
        self._config = config
        self._image = image
        self._rng = rng
        self._persister = persister
        self._regexes = regexes
        self._warn = limited_warnings("coordinator")
        self._env = Environment(GroupSettings.of(config), image, self._new_uuid, is_clock_trusted)
        settings = HostSettings(
            lambda: GroupShard(self._env),
            clock,
            loader,
            config.offsets_commit_timeout_ms / 1000,
            self._run_effect,
        )
        topic = InternalTopic(OFFSETS_TOPIC, image, self._new_topic, create_topic)
        self.runtime = CoordinatorRuntime(topic, partitions, config.node_id, settings)

    def start(self) -> None:
        """Read the cluster's configs. A shard is loaded when this broker becomes leader of its partition."""
        self._read_configs()

    def stop(self) -> None:
        self.runtime.resign_all()

    def metadata_changed(self, records: Sequence[Struct], removed: Sequence[tuple[str, bytes]]) -> None:
        """Apply changed configs and deleted topics; `removed` has the (name, id) of the latter."""
        if any(isinstance(record, ConfigRecord) and record.resource_type != TOPIC for record in records):
            self._read_configs()
        if removed:
            self.runtime.resign_deleted()
            self.runtime.notify_all(lambda shard: shard.topics_deleted(removed))

    def write_marker(self, index: int, marker: Marker, done: Callable[[ErrorCode], None]) -> None:
        """End a transaction in partition `index`, behind all records that its shard has decided on."""

        def operate(shard: GroupShard, _: object) -> Struct:
            partition = self.runtime.partition(index)
            assert partition is not None
            if self.runtime.unappended(index, marker.producer_id):
                # The check reads the log. A marker that the log refuses fails all requests of the turn.
                raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            check_marker(partition, marker)
            shard.outbox.records.append(
                EndMarker(
                    marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, marker.committed
                )
            )
            shard.replay_end_transaction_marker(marker.producer_id, marker.producer_epoch, marker.committed)
            return WritableTxnMarkerPartitionResult()

        def error_response(error: ApiError) -> Struct:
            return WritableTxnMarkerPartitionResult(error_code=error.code)

        def answered(response: Any) -> None:
            done(ErrorCode(response.error_code))

        response = self.runtime.submit_to(index, operate, error_response)
        if isinstance(response, Deferred):
            response.then(answered)
        else:
            answered(response)

    def _run_effect(self, index: int, effect: Effect) -> None:
        if isinstance(effect, ResolveTopicRegexes):
            self._persister.spawn(self._resolve_regexes(index, effect))
        elif isinstance(effect, ReportRefusedTarget):
            self._warn(
                "group_target_refused",
                group=effect.group_id,
                epoch=effect.epoch,
                members=effect.members,
                member=effect.member_id,
                reason=effect.reason,
            )
        else:
            assert isinstance(effect, InitializeShareState)
            self._persister.spawn(self._initialize_shares(index, effect))

    async def _resolve_regexes(self, index: int, effect: ResolveTopicRegexes) -> None:
        """Match the expressions of a group with the topics, and pass the outcome to the shard."""
        names = list(self._image.topics)
        found: dict[str, frozenset[str]] = {}
        for regex in effect.regexes:
            try:
                matching = await self._regexes.matching(regex, names)
            except ApiError as e:
                # A record of another implementation, or too many topics for the expression.
                log.warning("regex_not_resolved", group=effect.group_id, regex=regex, error=e.message)
                matching = []
            found[regex] = frozenset(await self._describable(effect, matching))
        self.runtime.notify(index, lambda shard: shard.topics_resolved(effect, found))

    async def _describable(self, effect: ResolveTopicRegexes, names: Sequence[str]) -> list[str]:
        """The topics that the group's member may describe, found a slice at a time."""
        found: list[str] = []
        for start in range(0, len(names), _CHECKED_AT_ONCE):
            found += filter(effect.may_describe, names[start : start + _CHECKED_AT_ONCE])
            await asyncio.sleep(0)
        return found

    async def _initialize_shares(self, index: int, effect: InitializeShareState) -> None:
        """Have the state of share partitions created, and pass the result to the shard."""
        wanted = effect.start_offsets
        failed = await self._persister.initialize(effect.group_id, effect.state_epoch, wanted)

        def event(shard: GroupShard) -> None:
            group = shard.shares.get(effect.group_id)
            if group is not None:
                shard.shares.state.creation_ended(group, wanted, failed)

        self.runtime.notify(index, event)

    def _read_configs(self) -> None:
        """Read the configs anew. Existing groups apply them from their members' next requests on."""
        config, env = self._config, self._env
        env.settings = GroupSettings.of(config)
        env.own_settings = {
            name: env.settings.with_own(values, config)
            for (kind, name), values in self._image.configs.items()
            if kind == GROUP
        }

    def _new_topic(self) -> NewTopic:
        config = self._config
        return NewTopic(
            OFFSETS_TOPIC,
            config.offsets_topic_num_partitions,
            # A broker without an internal listener is a cluster of one. In any other cluster the configured
            # number applies, even while fewer brokers are registered.
            1 if config.internal_endpoint is None else config.offsets_topic_replication_factor,
            configs={
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config.offsets_topic_segment_bytes),
            },
        )

    def _new_uuid(self) -> str:
        # Imported when the first member joins, to keep the start of a broker short.
        from uuid import UUID

        return str(UUID(bytes=self._rng.token(_UUID_BYTES), version=4))
