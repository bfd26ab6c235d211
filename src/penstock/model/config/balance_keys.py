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
        "The parts that the controller moves itself if the load of brokers is uneven: nothing, leaders, or "
        "leaders and replicas.",
        choices=("off", "leaders", "replicas"),
        update_mode=_CLUSTER,
    ),
    ConfigKey(
        "penstock.balance.interval.seconds",
        _L,
        60,
        "How often load is measured. One leader or replica moves at a time, after three measurements.",
        low=1,
        update_mode=_CLUSTER,
    ),
    ConfigKey(
        "penstock.balance.tolerance.percent",
        _I,
        20,
        "How far the load of a broker may be above the mean before anything moves. With "
        "penstock.balance.new.brokers, also how far its number of replicas may be below the mean.",
        low=1,
        update_mode=_CLUSTER,
    ),
    ConfigKey(
        "penstock.balance.bytes.per.second",
        _L,
        20 << 20,
        "The rate at which a broker fetches replicas that the cluster moves by itself; while "
        "penstock.balance is on, the rate for all new replicas. follower.replication.throttled.rate "
        "overrides it.",
        low=1,
        update_mode=_CLUSTER,
    ),
    ConfigKey(
        "penstock.balance.new.brokers",
        _B,
        False,
        "Whether a broker with far fewer replicas than the mean, for example a new one, receives its "
        "share of existing partitions. Clusters made by `penstock cluster start` have `true`.",
        update_mode=_CLUSTER,
    ),
    ConfigKey(
        "penstock.balance.exclude.brokers",
        _LIST,
        (),
        "Ids of brokers that never receive replicas automatically, also not of new partitions, for example "
        "a broker that was emptied on purpose.",
        check=_broker_ids,
        update_mode=_CLUSTER,
    ),
    ConfigKey(
        "penstock.reassignment.throttle",
        _S,
        "",
        "The memory of a throttle of moves: the rates that were set before it, which return when the moves "
        "have ended. `penstock partition reassign` and the console set it, the controller removes it.",
        update_mode=UpdateMode.PER_BROKER,
    ),
    ConfigKey(
        "penstock.self.healing.enable",
        _B,
        False,
        "Whether the replicas of a missing broker are rebuilt on other brokers. Clusters made by "
        "`penstock cluster start` have `true`.",
        update_mode=_CLUSTER,
    ),
    ConfigKey(
        "penstock.self.healing.delay.ms",
        _L,
        1_800_000,
        "How long a broker must be missing before its replicas are rebuilt.",
        low=0,
        update_mode=_CLUSTER,
    ),
    ConfigKey(
        "penstock.self.healing.partitions.max",
        _I,
        10,
        "The most partitions that self-healing and penstock.balance.new.brokers move at a time.",
        low=1,
        update_mode=_CLUSTER,
    ),
]
