"""The metrics of share groups."""

from __future__ import annotations

import asyncio

from penstock.testing.brokers import broker
from tests.broker.monitoring.scrapes import MONITORED, scrape
from tests.broker.raw import RawClient
from tests.broker.requests import create_topic, until
from tests.broker.share_groups import ACCEPT, REJECT, RELEASE, Member, append, set_group_configs


def test_share_groups() -> None:
    with broker(config=MONITORED) as running, RawClient(running.bootstrap) as client:
        set_group_configs(client, "jobs", share_auto_offset_reset="earliest")
        topic = create_topic(client, "work")
        append(client, topic, *[b"x"] * 6)
        member = Member(client, "jobs", topic).join()
        member.take(max_records=4, share_acquire_mode=1)
        assert member.outcome((0, 2, [ACCEPT, REJECT, RELEASE])) == "NONE"
        assert member.take(max_records=1, share_acquire_mode=1) == [(2, 2, 2)]
        monitor = running.broker.serving.monitor
        assert monitor is not None
        asyncio.run_coroutine_threadsafe(monitor.lags.sample(), running._loop).result(60)
        labels = {"group": "jobs", "topic": "work"}
        # A page that was built before the sample may still be shared.
        until(lambda: "penstock_share_group_lag_records" in scrape(monitor.port).names())
        found = scrape(monitor.port)
        assert found.value("penstock_share_group_lag_records", **labels) == 4
        assert 0 <= found.value("penstock_share_group_lag_seconds", **labels) < 3600
        asyncio.run_coroutine_threadsafe(monitor.lags.sample(), running._loop).result(60)
        until(lambda: scrape(monitor.port).value("penstock_share_group_lag_seconds", **labels) > 0)
        assert found.value("penstock_share_in_flight_records", **labels) == 2
        assert found.value("penstock_share_available_records", **labels) == 0
        assert found.value("penstock_share_deliveries_total", **labels) == 5
        assert found.value("penstock_share_redeliveries_total", **labels) == 1
        for kind in ("accept", "reject", "release"):
            assert found.value("penstock_share_acknowledgements_total", type=kind, **labels) == 1
        assert found.value("penstock_share_sessions") == 1
        assert found.value("penstock_delayed_messages_set_aside") == 0
