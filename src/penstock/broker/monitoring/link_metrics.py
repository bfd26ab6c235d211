"""Metrics of the links to other clusters, as this broker works for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from penstock.broker.monitoring.sources import Sources
from penstock.observability.exposition import Page

__all__ = ["collect_links"]

#: partitions that one step reads
_STEP = 64


def collect_links(page: Page, sources: Sources) -> Iterator[None]:
    """Nothing in a cluster without links."""
    now_ms = int(sources.clock.monotonic() * 1000)
    errors: Counter[str] = Counter()
    phases: Counter[tuple[str, str]] = Counter()
    behind: Counter[tuple[str, str]] = Counter()
    size: Counter[tuple[str, str]] = Counter()
    missed: Counter[tuple[str, str]] = Counter()
    late_ms: dict[tuple[str, str], int] = {}
    for nth, (link, each) in enumerate(list(sources.links.mirrored()), 1):
        key = link, each.partition.topic
        errors[link] += each.mirror.errors
        phases[link, str(each.mirror.phase)] += 1
        size[key] += each.bytes
        missed[key] += each.mirror.missed
        if each.lag >= 0:
            behind[key] += each.lag
        lag_ms = each.lag_ms(now_ms)
        if lag_ms >= 0:
            late_ms[key] = max(late_ms.get(key, 0), lag_ms)
        if not nth % _STEP:
            yield
    for state in sources.links.states():
        page.set("penstock_link_up", int(not state.error), link=state.name)
        page.set("penstock_link_errors_total", errors[state.name] + state.errors, link=state.name)
    for (link, phase), count in phases.items():
        page.set("penstock_link_partitions", count, link=link, phase=phase)
    for name, values in (("lag_records", behind), ("bytes_total", size), ("missed_records_total", missed)):
        for (link, topic), value in values.items():
            page.set(f"penstock_link_{name}", value, link=link, topic=topic)
    for (link, topic), milliseconds in late_ms.items():
        page.set("penstock_link_lag_seconds", milliseconds / 1000, link=link, topic=topic)
    yield
