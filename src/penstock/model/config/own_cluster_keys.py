"""The topic configs that name brokers, an archive or a link of their own cluster."""

from __future__ import annotations

from penstock.model.config.keys import ConfigKey, ConfigType, Copies
from penstock.model.config.mirrored_topics import check_mirrored_topic
from penstock.model.config.topic_rules import check_throttled_replicas, log_name

__all__ = ["OWN_CLUSTER_KEYS"]

_B, _S, _L, _LIST = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.LONG, ConfigType.LIST

OWN_CLUSTER_KEYS: list[ConfigKey] = [
    ConfigKey(
        "follower.replication.throttled.replicas",
        _LIST,
        (),
        "Replicas whose fetching is throttled on the follower: PARTITION:BROKER pairs, or `*` for all.",
        check=check_throttled_replicas,
        repeatable=True,
        left_out=Copies.MIRROR,
    ),
    ConfigKey(
        "leader.replication.throttled.replicas",
        _LIST,
        (),
        "Replicas whose fetches are throttled on the leader: PARTITION:BROKER pairs, or `*` for all.",
        check=check_throttled_replicas,
        repeatable=True,
        left_out=Copies.MIRROR,
    ),
    ConfigKey(
        "penstock.reassignment.throttle",
        _S,
        "",
        "The memory of a throttle of moves: the lists of throttled replicas that were set before it.",
        internal=True,
        left_out=Copies.MIRROR,
    ),
    ConfigKey(
        "local.retention.bytes",
        _L,
        -2,
        "The size of a partition's data that stays on disks with tiered storage, once the archive has "
        "it; -2 follows retention.bytes.",
        low=-2,
        synonyms=log_name("local.retention.bytes"),
        left_out=Copies.MIRROR,
    ),
    ConfigKey(
        "local.retention.ms",
        _L,
        -2,
        "How long data stays on disks with tiered storage, once the archive has it; -2 follows retention.ms.",
        low=-2,
        synonyms=log_name("local.retention.ms"),
        left_out=Copies.MIRROR,
    ),
    ConfigKey(
        "penstock.link",
        _S,
        "",
        "The cluster link that mirrors the topic, as LINK/STATE/ID/TOPIC with the id and the name of the "
        "topic at the source. Until it is promoted, the topic takes no records of producers. Links set "
        "it.",
        check=check_mirrored_topic,
        left_out=Copies.MIRROR | Copies.RESTORE,
    ),
    ConfigKey(
        "penstock.restoring",
        _B,
        False,
        "Whether a backup is being restored into the topic. The topic then takes only the batches of the "
        "restore. `penstock restore` sets it, and removes it at the end.",
        left_out=Copies.MIRROR,
    ),
    ConfigKey(
        "remote.log.copy.disable",
        _B,
        False,
        "Whether leaders stop copying new segments to the archive of tiered storage.",
        left_out=Copies.MIRROR,
    ),
    ConfigKey(
        "remote.log.delete.on.disable",
        _B,
        False,
        "Whether `remote.storage.enable=false` releases the copies in the archive, which `penstock backup"
        " prune` then deletes. Tiered storage of a topic cannot be disabled without it.",
        left_out=Copies.MIRROR,
    ),
    ConfigKey(
        "remote.storage.enable",
        _B,
        False,
        "Whether leaders copy the sealed segments of the topic to the archive. Needs "
        "`remote.log.storage.system.enable`, and a topic that is not compacted.",
        left_out=Copies.MIRROR | Copies.RESTORE | Copies.MOUNT,
    ),
]
