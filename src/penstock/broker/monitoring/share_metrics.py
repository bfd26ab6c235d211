"""Metrics of share groups: of the share partitions that this broker leads, and of those it coordinates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from penstock.broker.monitoring.group_lag import GroupLag
from penstock.broker.monitoring.sources import Sources
from penstock.observability.exposition import Page, escaped

__all__ = ["collect_shares"]


def collect_shares(page: Page, sources: Sources, lags: GroupLag) -> Iterator[None]:
    yield from _collect_deliveries(page, sources)
    lag = page["penstock_share_group_lag_records"]
    totals: Counter[tuple[str, str]] = Counter()
    for group, topic, index, start, complete in lags.share_partitions():
        end = lags.end_of(topic, index)
        # A lag that is not known is not 0.
        if end is not None:
            totals[group, topic] += max(0, end - start - complete)
        yield
    for (group, topic), records in totals.items():
        lag.add(_labels(group, topic), records)
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
