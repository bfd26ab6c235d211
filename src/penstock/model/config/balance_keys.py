"""The broker configs of what the cluster moves by itself: balancing and self-healing."""

from __future__ import annotations

from penstock.model.config.keys import ConfigKey, ConfigType, UpdateMode

__all__ = ["BALANCE_KEYS"]

_B, _S, _I, _L, _LIST = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.LIST,
)
_CLUSTER = UpdateMode.CLUSTER_WIDE


def _broker_ids(value: tuple[str, ...]) -> str | None:
    return None if all(each.isdecimal() for each in value) else "must be ids of brokers"


BALANCE_KEYS: list[ConfigKey] = [
    ConfigKey(
        "penstock.balance",
        _S,
        "off",
        "What moves by itself where brokers are loaded unevenly: nothing, leaders only, or replicas, too.",
        choices=("off", "leaders", "replicas"),
        update_mode=_CLUSTER,
    ),
    ConfigKey(
        "penstock.balance.interval.seconds",
        _L,
        60,
        "How often load is measured; one leader or replica moves at a time, after three measurements.",
        low=1,
        update_mode=_CLUSTER,
    ),
    ConfigKey(
        "penstock.balance.tolerance.percent",
        _I,
        20,
        "How far a broker's load may be above the mean before anything moves; with "
        "penstock.balance.new.brokers also how far its number of replicas may be below.",
        low=1,
        update_mode=_CLUSTER,
    ),
    ConfigKey(
        "penstock.balance.bytes.per.second",
        _L,
        20 << 20,
        "How fast a broker fetches new replicas that the cluster moves by itself, or all new ones while "
        "penstock.balance is on, where follower.replication.throttled.rate says nothing.",
        low=1,
        update_mode=_CLUSTER,
    ),
    ConfigKey(
        "penstock.balance.new.brokers",
        _B,
        False,
        "Whether a broker with far fewer replicas than the mean, as a new one, receives its share of "
        "existing partitions by itself. Clusters made by `penstock cluster start` have `true`.",
        update_mode=_CLUSTER,
    ),
    ConfigKey(
        "penstock.balance.exclude.brokers",
        _LIST,
        (),
        "Ids of brokers that receive nothing by itself, as one that was emptied on purpose.",
        check=_broker_ids,
        update_mode=_CLUSTER,
    ),
    ConfigKey(
        "penstock.self.healing.enable",
        _B,
        False,
        "Whether the replicas of a broker that is gone are rebuilt on others. Clusters made by "
        "`penstock cluster start` have `true`.",
        update_mode=_CLUSTER,
    ),
    ConfigKey(
        "penstock.self.healing.delay.ms",
        _L,
        1_800_000,
        "How long a broker has to be gone before its replicas are rebuilt.",
        low=0,
        update_mode=_CLUSTER,
    ),
    ConfigKey(
        "penstock.self.healing.partitions.max",
        _I,
        10,
        "Partitions at most that self-healing and penstock.balance.new.brokers move at a time.",
        low=1,
        update_mode=_CLUSTER,
    ),
]
