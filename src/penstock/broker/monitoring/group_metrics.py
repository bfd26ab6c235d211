"""Metrics of the groups that this broker coordinates, and of the share partitions that it leads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from penstock.broker.monitoring.group_lag import GroupLag
from penstock.broker.monitoring.sources import Sources
from penstock.observability.exposition import Page, escaped

__all__ = ["collect_groups", "collect_kafka_groups", "collect_shares"]


def collect_groups(page: Page, lags: GroupLag, now_ms: int) -> Iterator[None]:
    records, seconds = page["penstock_group_lag_records"], page["penstock_group_lag_seconds"]
    members, rebalances = page["penstock_group_members"], page["penstock_group_rebalances_total"]
    idle = page["penstock_group_idle_seconds"]
    for survey in lags.groups():
        group = escaped(survey.group)
        labels = f'{{group="{group}"}}'
        members.add(labels, survey.members)
        rebalances.add(labels, survey.rebalances)
        committed_ms: list[int] = []
        for topic in list(survey.offsets):
            if not survey.members:
                committed_ms += [max(each.commit_ms for each in survey.offsets[topic].values())]
            lag = lags.of_topic(survey, topic)
            # A lag that is not known is not 0.
            if any(behind is not None for _, _, behind in lag.partitions):
                labels = f'{{group="{group}",topic="{escaped(topic)}"}}'
                records.add(labels, lag.records)
                seconds.add(labels, round(lag.seconds, 3))
            yield
        if survey.members or committed_ms:
            idle_ms = 0 if survey.members else max(0, now_ms - max(committed_ms))
            idle.add(f'{{group="{group}"}}', idle_ms / 1000)
        yield


def collect_kafka_groups(page: Page, lags: GroupLag) -> Iterator[None]:
    """The same under the names of kafka_exporter, and by partition."""
    offsets, lag_of = page["kafka_consumergroup_current_offset"], page["kafka_consumergroup_lag"]
    offset_sums, lag_sums = (
        page["kafka_consumergroup_current_offset_sum"],
        page["kafka_consumergroup_lag_sum"],
    )
    for survey in lags.groups():
        group = escaped(survey.group)
        page["kafka_consumergroup_members"].add(f'{{consumergroup="{group}"}}', survey.members)
        for topic in list(survey.offsets):
            inner = f'consumergroup="{group}",topic="{escaped(topic)}"'
            lag = lags.of_topic(survey, topic)
            for index, committed, behind in lag.partitions:
                labels = f'{{{inner},partition="{index}"}}'
                offsets.add(labels, committed)
                if behind is not None:
                    lag_of.add(labels, behind)
            offset_sums.add(f"{{{inner}}}", sum(committed for _, committed, _ in lag.partitions))
            known = [behind for _, _, behind in lag.partitions if behind is not None]
            if known:
                # kafka_exporter counts partitions with a committed offset only.
                lag_sums.add(f"{{{inner}}}", sum(known))
            yield
        yield


def collect_shares(page: Page, sources: Sources, lags: GroupLag) -> Iterator[None]:
    yield from _collect_deliveries(page, sources)
    lag = page["penstock_share_group_lag_records"]
    seconds = page["penstock_share_group_lag_seconds"]
    totals: Counter[tuple[str, str]] = Counter()
    late_s: dict[tuple[str, str], float] = {}
    for group, topic, index, start, complete in lags.share_partitions():
        end = lags.end_of(topic, index)
        # A lag that is not known is not 0.
        if end is not None:
            key = group, topic
            totals[key] += max(0, end - start - complete)
            late_s[key] = max(late_s.get(key, 0.0), lags.seconds_behind(topic, index, start))
        yield
    for (group, topic), records in totals.items():
        lag.add(_labels(group, topic), records)
        seconds.add(_labels(group, topic), round(late_s[group, topic], 3))
        yield


def _collect_deliveries(page: Page, sources: Sources) -> Iterator[None]:
    shares = sources.shares
    in_flight, locked = page["penstock_share_in_flight_records"], page["penstock_share_available_records"]
    flying: Counter[tuple[str, str]] = Counter()
    available: Counter[tuple[str, str]] = Counter()
    for host in list(shares.partitions.hosts()):
        if host.share is not None:
            key = host.key.group_id, host.partition.topic
            flying[key] += host.share.in_flight
            available[key] += host.share.available
        yield
    for key, records in flying.items():
        in_flight.add(_labels(*key), records)
        locked.add(_labels(*key), available[key])
    for (group, topic), stats in shares.partitions.stats.current(shares.partitions.env.now_ms()):
        labels = _labels(group, topic)
        page["penstock_share_deliveries_total"].add(labels, stats.deliveries)
        page["penstock_share_redeliveries_total"].add(labels, stats.redeliveries)
        page["penstock_share_expired_locks_total"].add(labels, stats.expired)
        for kind, count in stats.acknowledged.items():
            page["penstock_share_acknowledgements_total"].add(
                f'{labels[:-1]},type="{kind.name.lower()}"}}', count
            )
        yield
    page.set("penstock_share_sessions", len(shares.partitions.sessions))
    page.set("penstock_dead_letters_total", shares.dead_letters.written)
    page.set("penstock_dead_letters_failed_total", shares.dead_letters.failed)
    page.set("penstock_delayed_messages_refused_total", shares.delays.counts.refused)
    page.set("penstock_delayed_messages_set_aside", shares.delays.set_aside)


def _labels(group: str, topic: str) -> str:
    return f'{{group="{escaped(group)}",topic="{escaped(topic)}"}}'
