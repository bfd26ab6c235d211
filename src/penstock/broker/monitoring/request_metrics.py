"""Metrics of requests, connections and security."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from penstock.broker.base.metrics import ApiStats
from penstock.broker.monitoring.sources import Sources
from penstock.model.errors import ErrorCode
from penstock.net.server import Server
from penstock.observability.exposition import Page, labelled

__all__ = ["collect_connections", "collect_requests", "collect_security", "error_name"]

#: connections that one step looks at
_STEP: Final = 50
#: names of client software that are counted one by one: clients choose them
SOFTWARE_MAX: Final = 50
_OTHER: Final = "other"


def error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


def collect_requests(page: Page, sources: Sources) -> Iterator[None]:
    metrics = sources.metrics
    in_flight: Counter[ApiStats] = Counter()
    for server in sources.servers:
        for nth, connection in enumerate(list(server.connections)):
            for request in connection.pending_requests():
                if isinstance(request, ApiStats):
                    in_flight[request] += 1
            if nth % _STEP == 0:
                yield
    for listener, apis in (("client", metrics.apis), ("internal", metrics.internal_apis)):
        for stats in list(apis.values()):
            labels = labelled(api=stats.name, listener=listener)
            latency = stats.latency
            page["penstock_requests_total"].add(labels, latency.count)
            page["penstock_request_failures_total"].add(labels, stats.failures)
            page["penstock_slow_requests_total"].add(labels, stats.slow)
            page["penstock_request_duration_seconds"].add_histogram(labels, latency.buckets, latency.total_ns)
            page["penstock_requests_in_flight"].add(labels, in_flight[stats])
            for code, count in stats.errors.items():
                page.set(
                    "penstock_request_errors_total",
                    count,
                    api=stats.name,
                    listener=listener,
                    error=error_name(code),
                )
            yield
    page.set("penstock_unsupported_requests_total", sum(metrics.unsupported.values()))


def collect_connections(page: Page, sources: Sources) -> Iterator[None]:
    software: Counter[str] = Counter()
    for server in sources.servers:
        yield from _collect_server(page, server, software)
    for name, count in software.items():
        page.set("penstock_client_connections", count, software=name)
    counts = [server.counts for server in sources.servers]
    page.set("penstock_connections_rejected_total", sum(each.rejected for each in counts))
    page.set("penstock_connections_expired_total", sum(each.expired for each in counts))


def _collect_server(page: Page, server: Server, software: Counter[str]) -> Iterator[None]:
    counts = server.counts
    bytes_in, bytes_out = counts.bytes_in.copy(), counts.bytes_out.copy()
    buffered: Counter[str] = Counter()
    is_open: Counter[str] = Counter()
    # One that closes meanwhile counts as open: the copied totals do not have its bytes.
    for nth, connection in enumerate(list(server.connections)):
        listener = connection.listener.name
        is_open[listener] += 1
        bytes_in[listener] += connection.received
        bytes_out[listener] += connection.sent
        buffered[listener] += connection.buffered
        name = "unknown" if connection.software is None else connection.software[0]
        software[name if name in software or len(software) < SOFTWARE_MAX else _OTHER] += 1
        if nth % _STEP == 0:
            yield
    for listener in {*counts.opened, *is_open}:
        labels = labelled(listener=listener)
        page["penstock_connections"].add(labels, is_open[listener])
        page["penstock_connections_opened_total"].add(labels, counts.opened[listener])
        page["penstock_receive_buffer_bytes"].add(labels, buffered[listener])
        page["penstock_network_bytes_in_total"].add(labels, bytes_in[listener])
        page["penstock_network_bytes_out_total"].add(labels, bytes_out[listener])
    for (listener, reason), count in counts.refusals.items():
        page.set("penstock_connections_refused_total", count, listener=listener, reason=reason)


def collect_security(page: Page, sources: Sources) -> Iterator[None]:
    for (mechanism, result), count in sources.securities.authentications.items():
        page.set("penstock_authentications_total", count, mechanism=mechanism, result=result)
    failures: Counter[str] = Counter()
    for server in sources.servers:
        failures.update(server.counts.handshake_failures)
    for reason, count in failures.items():
        page.set("penstock_tls_handshake_failures_total", count, reason=reason)
    for listener, expiry in sources.securities.certificate_expiries().items():
        page.set("penstock_tls_certificate_expiry_timestamp_seconds", expiry, listener=listener)
    for (operation, resource), count in sources.audit.denials.items():
        page.set("penstock_authorization_denied_total", count, operation=operation, resource=resource)
    for sink, count in sources.audit.dropped.items():
        page.set("penstock_audit_events_dropped_total", count, sink=sink)
    for user, waits in list(sources.metrics.throttles.items()):
        family = page["penstock_throttle_seconds"]
        family.add_histogram(labelled(user=user), waits.buckets, waits.total_ns)
        yield
    yield
