"""The table of APIs beside Kafka's is what a broker offers."""

from __future__ import annotations

from conformance.apis import MISSING, kafka_apis, render_apis
from penstock.testing import broker
from penstock.wire.apis.api_versions import API_VERSIONS, ApiVersionsRequest
from tests.broker.raw import RawClient


def test_the_broker_offers_the_versions_of_kafka() -> None:
    named = ApiVersionsRequest(client_software_name="raw", client_software_version="1.0")
    with broker() as running, RawClient(running.bootstrap) as client:
        response = client.call(API_VERSIONS, API_VERSIONS.max_version, named)
    ours = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
    differing = {key for key, versions in kafka_apis().items() if ours.get(key) != versions}
    assert differing == set(MISSING), "name the reason in conformance/apis.py"


def test_each_api_has_a_row() -> None:
    page = render_apis()
    assert page.count("\n| ") == len(kafka_apis()) + 1
    assert "| 88 | StreamsGroupHeartbeat | 0 to 0 | same |" in page
