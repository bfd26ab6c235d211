"""The health of a broker in DescribeLogDirs, with and without a monitoring port."""

from __future__ import annotations

from penstock.observability.health_wire import report_of
from penstock.testing import broker
from penstock.wire.apis.describe_log_dirs import DESCRIBE_LOG_DIRS, DescribeLogDirsRequest
from tests.broker.raw import RawClient


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
