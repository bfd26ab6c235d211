"""The share partitions of a broker, and the share sessions of its connections."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.broker.coordinators.share_persister import SharePersister
from penstock.broker.replica.partition import Partition
from penstock.broker.shares.dead_letters import DeadLetters
from penstock.broker.shares.group_settings import ShareGroupSettings, SharesConfig
from penstock.broker.shares.partition_host import HostEnvironment, SharePartitionHost
from penstock.model.errors import ErrorCode
from penstock.ports import Clock, Workers
from penstock.shares.sessions import ShareSession, ShareSessions
from penstock.shares.shard import ShareStateKey
from penstock.shares.stats import StatsByGroup
from penstock.wire.metadata_records import ConfigRecord
from penstock.wire.schema import Struct

__all__ = ["SharePartitions"]


class SharePartitions:
    """Finds or loads share partitions, and discards those that no session needs."""

    def __init__(
        self,
        config: SharesConfig,
        clock: Clock,
        workers: Workers,
        persister: SharePersister,
        dead_letters: DeadLetters,
    ) -> None:
        self.config = config
        self.sessions = ShareSessions()
        self.env = HostEnvironment(clock, workers, persister, config, dead_letters, self._discard)
        self._hosts: dict[ShareStateKey, SharePartitionHost] = {}
        self.stats = StatsByGroup()

    def __len__(self) -> int:
        return len(self._hosts)

    def hosts(self) -> Iterable[SharePartitionHost]:
        """All share partitions of this broker."""
        return self._hosts.values()

    def settings(self, group_id: str) -> ShareGroupSettings:
        return self.config.of(group_id)

    def get(self, key: ShareStateKey) -> SharePartitionHost | None:
        """The share partition, if it is hosted in the current term of its leader."""
        host = self._hosts.get(key)
        if host is not None and not host.is_current:
            host.end(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return None
        return host

    def find(self, key: ShareStateKey, partition: Partition) -> SharePartitionHost:
        """The share partition of a partition that this broker leads. It may have to be loaded first."""
        host = self.get(key)
        if host is None:
            stats = self.stats.use(key.group_id, partition.topic)
            host = self._hosts[key] = SharePartitionHost(key, partition, self.env, stats)
        return host

    # -- sessions

    def end_session(self, session: ShareSession) -> None:
        """Release what the member of a session that was closed has acquired."""
        group_id, member_id = session.key
        for topic_id, index in session.partitions:
            self.release(ShareStateKey(group_id, topic_id, index), member_id)
        if not self.sessions.has_group(group_id):
            for host in [host for key, host in self._hosts.items() if key.group_id == group_id]:
                self._discard(host)

    def revoke(self, connection: object, group_id: str, member_id: str) -> None:
        """End the session of a member without the right to read the group, if `connection` opened it."""
        session = self.sessions.get(group_id, member_id)
        if session is not None and session.connection is connection:
            self.sessions.close(group_id, member_id)
            self.end_session(session)

    def release(self, key: ShareStateKey, member_id: str) -> None:
        """Release what a member has acquired in one share partition."""
        host = self._hosts.get(key)
        if host is not None:
            host.release(member_id)

    def connection_lost(self, connection: object) -> None:
        for session in self.sessions.close_connection(connection):
            self.end_session(session)

    def _discard(self, host: SharePartitionHost) -> None:
        """Remove a host that has ended, or that no session of its group needs once its state is persisted."""
        is_needed = host.error is None and (not host.is_idle or self.sessions.has_group(host.key.group_id))
        if is_needed or self._hosts.get(host.key) is not host:
            return
        if host.error is None and host.settle():
            # The host calls again after the write.
            return
        del self._hosts[host.key]
        self.stats.end_use(host.key.group_id, host.partition.topic, host.stats, self.env.now_ms())
        if host.error is None:
            host.end(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    # -- metadata

    def metadata_changed(self, records: Sequence[Struct], removed: Sequence[tuple[str, bytes]]) -> None:
        """Apply changed configs and deleted topics; `removed` has the (name, id) of the latter."""
        if removed or any(isinstance(record, ConfigRecord) for record in records):
            self.config.changed()
        if not removed:
            return
        gone = {topic_id for _, topic_id in removed}
        for host in [host for key, host in self._hosts.items() if key.topic_id in gone]:
            host.end(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self.stats.drop_topics({name for name, _ in removed})

    def stop(self) -> None:
        for host in list(self._hosts.values()):
            host.end(ErrorCode.NOT_LEADER_OR_FOLLOWER)
