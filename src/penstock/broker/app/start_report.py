"""Logs the start of a broker: its recovered logs, and the settings that have no effect."""

from __future__ import annotations

from penstock.broker.base.logs import get_logger
from penstock.broker.replica.partitions import Partitions
from penstock.metadata.policy import MIN_ISR
from penstock.model.config import BrokerConfig
from penstock.model.ids import METADATA_TOPIC
from penstock.storage.log import Log

__all__ = ["log_start"]

log = get_logger("broker")


def log_start(
    config: BrokerConfig, partitions: Partitions, metadata_log: Log, *, address: str, seconds: float
) -> None:
    """Log that clients can connect, and the work of recovery."""
    recoveries = {partition.name: partition.log.recovery for partition in partitions}
    count = len(recoveries)
    recoveries[METADATA_TOPIC] = metadata_log.recovery
    for name, found in recoveries.items():
        if found.bytes_cut or found.segments_dropped or found.corruption:
            log.info(
                "recovered",
                partition=name,
                bytes_cut=found.bytes_cut,
                segments_dropped=found.segments_dropped,
                damaged_ranges=len(found.corruption),
            )
    walked = sum(found.bytes_walked for found in recoveries.values())
    log.info(
        "started",
        address=address,
        node_id=config.node_id,
        partitions=count,
        clean=walked == 0,  # the metadata log is never empty
        bytes_walked=walked,
        bytes_cut=sum(found.bytes_cut for found in recoveries.values()),
        seconds=seconds,
    )
    _log_settings_without_effect(config)


def _log_settings_without_effect(config: BrokerConfig) -> None:
    in_file, in_force = config.static.get(MIN_ISR), config.min_insync_replicas
    if in_file is not None and int(in_file) != in_force:
        reason = f"the cluster has {in_force}: penstock config set --all-brokers {MIN_ISR}={in_file}"
        log.warning("setting_without_effect", name=MIN_ISR, value=in_file, reason=reason)
    for key in config.settings_without_effect():
        value = config.static[key.name]
        log.warning("setting_without_effect", name=key.name, value=value, reason=key.without_effect)
