"""The first page: explained health, brokers, controllers, throughput, lag, the latest changes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from penstock.console.views.events import Event
from penstock.console.views.knowledge import UNKNOWN, Gap
from penstock.console.views.samples import History, Sample, as_points, is_internal, lag_cells, total_lag
from penstock.observability.health import ClusterFacts, Level, TopicFacts
from penstock.observability.health_merge import MergedHealth, merged
from penstock.observability.health_observed import Silence, observed_reports
from penstock.observability.lag import Lag
from penstock.wire.apis.describe_log_dirs import DescribeLogDirsResponse

__all__ = ["broker_rows", "health_of", "overview", "quorum_view"]

_TOP: Final = 8
_EVENTS: Final = 40


def overview(history: History, events: Iterable[Event], doubt: str | None) -> dict[str, Any]:
    """The state of the cluster for the first page and for the header of every page.

    `doubt` is why the last sample need not be the present state.
    """
    sample = history.last
    if sample is None:
        return {"health": {"level": Level.UNKNOWN, "reasons": [doubt or "no broker has responded yet"]}}
    health = health_of(sample)
    level, reasons = health.level, health.reasons
    if doubt is not None:
        level, reasons = Level.UNKNOWN, [doubt, *reasons]
    topics = [name for name in sample.topic_ids if not is_internal(sample, name)]
    records, volume = (history.total_rate(rates) for rates in (history.records_per_s, history.bytes_per_s))
    lag = total_lag(sample)
    return {
        "time": round(sample.time_s, 1),
        "cluster_id": sample.metadata.cluster_id,
        "health": {"level": level, "reasons": reasons},
        "brokers": broker_rows(sample),
        "quorum": quorum_view(sample),
        "totals": {
            "topics": len(topics),
            "internal_topics": len(sample.topic_ids) - len(topics),
            "partitions": len(sample.partitions),
            "offline": sum(p.leader < 0 for p in sample.partitions.values()),
            "under_replicated": sum(len(p.isr) < len(p.replicas) for p in sample.partitions.values()),
            "groups": None if sample.groups is None else len(sample.groups),
            "size": sum(sample.sizes.values()) if sample.sizes or not sample.partitions else None,
            "records_per_s": None if records is None else round(records, 1),
            "bytes_per_s": None if volume is None else round(volume),
            "lag": None if lag is None else lag.records,
        },
        "gaps": _gaps(sample, lag),
        "series": {name: as_points(series) for name, series in history.totals.items()},
        "busiest": _busiest(history),
        "laggards": _laggards(history, sample),
        "events": [event.shown() for event in reversed(list(events)[-_EVENTS:])],
    }


def _gaps(sample: Sample, lag: Lag | None) -> dict[str, Any]:
    """Why totals are missing, or lower bounds: by the name of the total."""
    found = {name: gap.shown() for name, gap in sample.gaps.items()}
    if "sizes" in found:
        found["size"] = found["sizes"]
    if lag is None or not lag.is_exact:
        unread = next((group.gap for group in sample.groups or () if group.gap is not None), None)
        gap = sample.gaps.get("groups") or unread or sample.gaps.get("ends")
        found["lag"] = (gap or Gap(UNKNOWN, "some offsets are not known")).shown()
    return found


def health_of(sample: Sample) -> MergedHealth:
    """The health that the brokers report, merged as `penstock health` does it."""
    topics: dict[str, TopicFacts] = {}
    for (name, _), partition in sample.partitions.items():
        offline, _, lacking = topics.get(name, TopicFacts())
        behind = len(partition.isr) < len(partition.replicas)
        topics[name] = TopicFacts(offline + (partition.leader < 0), 0, lacking + behind)
    fenced = [b.broker_id for b in sample.cluster.brokers if b.is_fenced] if sample.cluster else []
    missing = {b for p in sample.partitions.values() for b in p.replicas} - sample.log_dirs.keys()
    facts = ClusterFacts(
        has_controller=sample.quorum is None or sample.quorum.leader_id >= 0,
        fenced=fenced,
        missing=dict.fromkeys(sorted(missing - set(fenced)), 0),
        offline_partitions=sum(each.offline for each in topics.values()),
        under_replicated=sum(each.under_replicated for each in topics.values()),
    )
    answers = {
        broker: Silence("no answer") if answer is None else answer
        for broker, answer in sample.log_dirs.items()
    }
    return merged(observed_reports(answers, facts, topics))


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
    gap = sample.gaps.get("topics")
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
                # Why the three numbers are lower bounds.
                "gap": None if gap is None else gap.shown(),
                "voter": broker in voters,
                "controller": sample.quorum is not None and sample.quorum.leader_id == broker,
                **_held(sample.log_dirs.get(broker)),
            }
        )
    return rows


def _held(answer: DescribeLogDirsResponse | None) -> dict[str, Any]:
    if answer is None or answer.error_code:
        return {"size": None, "disk_free": None, "disk_total": None}
    size = sum(p.partition_size for d in answer.results for t in d.topics for p in t.partitions)
    measured = [d for d in answer.results if d.total_bytes >= 0]
    return {
        "size": size,
        "disk_free": sum(d.usable_bytes for d in measured) if measured else None,
        "disk_total": sum(d.total_bytes - d.reserved_bytes for d in measured) if measured else None,
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


def _busiest(history: History) -> list[dict[str, Any]] | None:
    """Topics by their rate; None while rates are not known."""
    if history.records_per_s is None:
        return None
    assert history.last is not None, "rates are those of a sample"
    rates = [each for each in history.records_per_s.items() if not is_internal(history.last, each[0])]
    ranked = sorted(rates, key=lambda each: -each[1])[:_TOP]
    return [
        {
            "topic": name,
            "records_per_s": round(rate, 1),
            "bytes_per_s": history.byte_rate(name),
            "rate": as_points(history.topics.get(name), 60),
        }
        for name, rate in ranked
    ]


def _laggards(history: History, sample: Sample) -> list[dict[str, Any]] | None:
    """Groups by their lag; None if groups are not known."""
    if sample.groups is None:
        return None
    lags = [(group, sample.lags[group.name]) for group in sample.groups]
    known = [(group, lag) for group, lag in lags if lag is not None and lag.records]
    ranked = sorted(known, key=lambda each: -each[1].records)[:_TOP]
    return [
        {
            "group": group.name,
            "state": group.state,
            **lag_cells(lag),
            "series": as_points(history.groups.get(group.name), 60),
        }
        for group, lag in ranked
    ]
