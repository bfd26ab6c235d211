"""The first page: explained health, brokers, controllers, throughput, lag, the latest changes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from penstock.console.views.events import Event
from penstock.console.views.samples import History, Sample, as_points
from penstock.observability.health import DISK_FREE_MIN, ClusterFacts, Health, Level, cluster_health
from penstock.wire.apis.describe_log_dirs import DescribeLogDirsResponse

__all__ = ["broker_rows", "health_of", "overview", "quorum_view"]

_TOP: Final = 8
_EVENTS: Final = 40


def overview(history: History, events: Iterable[Event], error: str | None) -> dict[str, Any]:
    """The state of the cluster for the first page and for the header of every page."""
    sample = history.last
    if sample is None:
        return {"health": {"level": Level.UNKNOWN, "reasons": [error or "no broker has responded yet"]}}
    health = health_of(sample)
    if error is not None:
        health = Health(Level.UNKNOWN, (f"the last request failed: {error}", *health.reasons))
    topics = [name for name in sample.topic_ids if not _is_internal(sample, name)]
    return {
        "time": round(sample.time_s, 1),
        "cluster_id": sample.metadata.cluster_id,
        "health": {"level": health.level, "reasons": list(health.reasons)},
        "brokers": broker_rows(sample),
        "quorum": quorum_view(sample),
        "totals": {
            "topics": len(topics),
            "internal_topics": len(sample.topic_ids) - len(topics),
            "partitions": len(sample.partitions),
            "offline": sum(p.leader < 0 for p in sample.partitions.values()),
            "under_replicated": sum(len(p.isr) < len(p.replicas) for p in sample.partitions.values()),
            "groups": None if sample.groups is None else len(sample.groups),
            "size": sum(sample.sizes.values()),
            "records_per_s": round(sum(history.records_per_s.values()), 1),
            "bytes_per_s": round(sum(history.bytes_per_s.values())),
            "lag": _total_lag(sample),
        },
        "series": {name: as_points(series) for name, series in history.totals.items()},
        "busiest": _busiest(history),
        "laggards": _laggards(history, sample),
        "events": [event.shown() for event in reversed(list(events)[-_EVENTS:])],
    }


def _is_internal(sample: Sample, name: str) -> bool:
    return name in sample.internal or name.startswith("__")


def health_of(sample: Sample) -> Health:
    """The health of the cluster with the reasons; unreachable brokers and full disks count."""
    offline = sum(p.leader < 0 for p in sample.partitions.values())
    lacking = sum(len(p.isr) < len(p.replicas) for p in sample.partitions.values())
    fenced = [b.broker_id for b in sample.cluster.brokers if b.is_fenced] if sample.cluster else []
    facts = ClusterFacts(
        has_controller=sample.quorum is None or sample.quorum.leader_id >= 0,
        fenced=fenced,
        offline_partitions=offline,
        under_replicated=lacking,
    )
    found = cluster_health(facts)
    more = [*_silent(sample, fenced), *_disks(sample)]
    if not more:
        return found
    level = found.level if found.level != Level.HEALTHY else Level.DEGRADED
    return Health(level, (*found.reasons, *more))


def _silent(sample: Sample, fenced: list[int]) -> Iterable[str]:
    for broker, answer in sample.log_dirs.items():
        if answer is None and broker not in fenced:
            yield f"broker {broker} has not responded"
    missing = {b for p in sample.partitions.values() for b in p.replicas} - sample.log_dirs.keys()
    for broker in sorted(missing - set(fenced)):
        yield f"broker {broker} is not in the cluster, and replicas are assigned to it"


def _disks(sample: Sample) -> Iterable[str]:
    for broker, answer in sample.log_dirs.items():
        for directory in () if answer is None else answer.results:
            if directory.error_code:
                yield f"broker {broker}: data directory {directory.log_dir} is offline"
            elif directory.is_full:
                yield f"broker {broker}: data directory {directory.log_dir} is full"
            elif 0 <= directory.usable_bytes < DISK_FREE_MIN * directory.total_bytes:
                share = directory.usable_bytes / directory.total_bytes
                yield f"broker {broker}: the volume of {directory.log_dir} has {share:.0%} free"


def broker_rows(sample: Sample) -> list[dict[str, Any]]:
    """Brokers of the metadata and fenced ones, with their partitions and disks."""
    fenced = {b.broker_id: b for b in sample.cluster.brokers if b.is_fenced} if sample.cluster else {}
    alive = {b.node_id: b for b in sample.metadata.brokers}
    leads: dict[int, int] = {}
    holds: dict[int, int] = {}
    behind: dict[int, int] = {}
    for p in sample.partitions.values():
        leads[p.leader] = leads.get(p.leader, 0) + 1
        for broker in p.replicas:
            holds[broker] = holds.get(broker, 0) + 1
            behind[broker] = behind.get(broker, 0) + (broker not in p.isr)
    voters = {} if sample.quorum is None else {v.replica_id for v in sample.quorum.current_voters}
    rows = []
    for broker in sorted({*alive, *fenced, *holds}):
        known = alive.get(broker) or fenced.get(broker)
        state = "fenced" if broker in fenced else "gone" if broker not in alive else "running"
        if state == "running" and sample.log_dirs.get(broker) is None:
            state = "silent"
        rows.append(
            {
                "id": broker,
                "address": f"{known.host}:{known.port}" if known else None,
                "rack": known.rack if known else None,
                "state": state,
                "leads": leads.get(broker, 0),
                "replicas": holds.get(broker, 0),
                "behind": behind.get(broker, 0),
                "voter": broker in voters,
                "controller": sample.quorum is not None and sample.quorum.leader_id == broker,
                **_held(sample.log_dirs.get(broker)),
            }
        )
    return rows


def _held(answer: DescribeLogDirsResponse | None) -> dict[str, Any]:
    if answer is None:
        return {"size": None, "disk_free": None, "disk_total": None}
    size = sum(p.partition_size for d in answer.results for t in d.topics for p in t.partitions)
    measured = [d for d in answer.results if d.total_bytes >= 0]
    return {
        "size": size,
        "disk_free": sum(d.usable_bytes for d in measured) if measured else None,
        "disk_total": sum(d.total_bytes for d in measured) if measured else None,
    }


def quorum_view(sample: Sample) -> dict[str, Any] | None:
    """The metadata quorum; None where brokers do not describe it to this user."""
    quorum = sample.quorum
    if quorum is None:
        return None
    end = max((v.log_end_offset for v in quorum.current_voters), default=0)
    return {
        "leader": quorum.leader_id if quorum.leader_id >= 0 else None,
        "epoch": quorum.leader_epoch,
        "high_watermark": str(quorum.high_watermark),
        "voters": [
            {"id": v.replica_id, "lag": max(0, end - v.log_end_offset), "end": str(v.log_end_offset)}
            for v in quorum.current_voters
        ],
        "observers": [
            {"id": v.replica_id, "lag": max(0, end - v.log_end_offset), "end": str(v.log_end_offset)}
            for v in quorum.observers
        ],
    }


def _total_lag(sample: Sample) -> int | None:
    if sample.groups is None:
        return None
    return sum(group.lag(sample.ends) or 0 for group in sample.groups)


def _busiest(history: History) -> list[dict[str, Any]]:
    ranked = sorted(history.records_per_s.items(), key=lambda each: -each[1])[:_TOP]
    return [
        {
            "topic": name,
            "records_per_s": round(rate, 1),
            "bytes_per_s": round(history.bytes_per_s.get(name, 0.0)),
            "rate": as_points(history.topics.get(name), 60),
        }
        for name, rate in ranked
    ]


def _laggards(history: History, sample: Sample) -> list[dict[str, Any]]:
    lags = [(group, group.lag(sample.ends)) for group in sample.groups or ()]
    ranked = sorted(((g, lag) for g, lag in lags if lag), key=lambda each: -each[1])[:_TOP]
    return [
        {
            "group": group.name,
            "state": group.state,
            "lag": lag,
            "series": as_points(history.groups.get(group.name), 60),
        }
        for group, lag in ranked
    ]
