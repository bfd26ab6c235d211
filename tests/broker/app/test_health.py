"""The health of a broker in DescribeLogDirs, with and without a monitoring port."""

from __future__ import annotations

from penstock.model.errors import ErrorCode
from penstock.observability.health_wire import report_of
from penstock.testing import broker
from penstock.wire.apis.describe_log_dirs import DESCRIBE_LOG_DIRS, DescribeLogDirsRequest
from tests.broker.configs import BROKER, NODE, SET, alter
from tests.broker.monitoring.scrapes import MONITORED, scrape
from tests.broker.raw import RawClient
from tests.broker.requests import append, create_topic
from tests.waiting import eventually


def test_a_broker_without_a_monitoring_port_reports_its_health_on_request() -> None:
    with broker() as running, RawClient(running.bootstrap) as client:
        assert running.broker.serving.monitor is None
        request = DescribeLogDirsRequest(topics=[], include_health=True)
        registered = running.broker.stages.cluster.image.brokers[running.broker.stages.config.node_id]
        registered.fenced = True
        try:
            report = report_of(1, client.call(DESCRIBE_LOG_DIRS, 4, request))
        finally:
            registered.fenced = False
        assert report is not None
        assert {"fenced", "broker_fenced"} <= {finding.code for finding in report.findings}
        plain = client.call(DESCRIBE_LOG_DIRS, 4, DescribeLogDirsRequest(topics=[]))
        assert report_of(1, plain) is None


def test_configs_say_how_much_free_space_is_too_little_at_any_time() -> None:
    config = {**MONITORED, "penstock.disk.free.min.ratio": "1"}
    with broker(config=config) as running, RawClient(running.bootstrap) as client:
        monitor = running.broker.serving.monitor
        assert monitor is not None

        def limit_and_findings() -> tuple[float, bool]:
            page = scrape(monitor.port)
            codes = {labels["code"] for labels in page.labels("penstock_health_findings")}
            (directory,) = page.labels("penstock_disk_free_min_ratio")
            return page.value("penstock_disk_free_min_ratio", **directory), "disk_low" in codes

        append(client, create_topic(client), b"value")
        assert limit_and_findings() == (1, True)

        changed = alter(client, BROKER, NODE, ("penstock.disk.free.min.bytes", SET, "0"))

        assert changed[0] == ErrorCode.NONE
        eventually(lambda: limit_and_findings() == (0, False))
