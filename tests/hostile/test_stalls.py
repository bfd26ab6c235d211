"""The fast part of `make hostile`: long lists at the latest version of each API, as two kinds of clients."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lab.stall_meter import StallMeter
from penstock.wire.apis import APIS
from penstock.wire.apis.api_versions import API_VERSIONS, ApiVersionsRequest
from penstock.wire.apis.describe_groups import DESCRIBE_GROUPS
from penstock.wire.apis.find_coordinator import FIND_COORDINATOR
from penstock.wire.messages import encode_request
from tests.hostile.clients import Client, Kind
from tests.hostile.conftest import metered
from tests.hostile.large import Case, Form, cases
from tests.hostile.meter import Limits, Reading
from tests.hostile.search import Search
from tests.hostile.sweep import Plan, sweep
from tests.hostile.target import SLOW, target
from tests.waiting import eventually

pytestmark = pytest.mark.process
#: Above the number of elements from which on a request is large: growth compares the same implementation.
_SMALL = 600


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "form"), [(Kind.DENIED, Form.UNKNOWN), (Kind.SUPER, Form.UNKNOWN)])
def test_no_long_list_holds_the_loop(kind: Kind, form: Form) -> None:
    plan = Plan(
        small=_SMALL,
        largest=4 * _SMALL,
        every_version=False,
        kinds=[kind],
        forms=[form],
        shared=True,
        honest=False,
    )
    report = sweep(plan, lambda _: None)
    assert not report.failures, "\n".join(map(str, report.failures))
    assert report.requests > 100


def test_the_search_finds_quadratic_costs_and_stalls_and_shrinks_them() -> None:
    """A handler that is slow on purpose: the meter can fail."""
    with metered({SLOW: "true"}) as found:
        case = Case(FIND_COORDINATOR, 6, ("coordinator_keys",), Form.UNKNOWN)
        quadratic = Search(found.meter, 12, 48)
        quadratic.check(case, Kind.OPEN)
        assert [failure.rule for failure in quadratic.failures] == ["growth"]
        stalls = Search(found.meter, 150, 150)
        stalls._check_stall(case, Kind.OPEN)
        (failure,) = stalls.failures
        assert failure.rule == "stall"
        assert failure.reading is not None and failure.reading.wait_ms > 20
        assert "in all]" in failure.request


def test_a_request_without_a_response_is_a_failure_and_the_search_goes_on() -> None:
    def read(kind: Kind, frame: bytes) -> Reading:
        raise TimeoutError("timed out")

    meter: Any = SimpleNamespace(limits=Limits(20.0, 50.0, 1.0), read=read)
    search = Search(meter, 12, 48)
    case = Case(FIND_COORDINATOR, 6, ("coordinator_keys",), Form.UNKNOWN)
    search.run([case, case], [Kind.OPEN])
    assert [(failure.rule, failure.size) for failure in search.failures] == [("unanswered", 12)] * 2
    assert "FindCoordinatorRequest" in str(search.failures[0])


def test_a_resting_meter_sends_no_requests() -> None:
    with (
        target() as running,
        StallMeter(running.ports["PLAINTEXT"], running.loop_thread) as honest,
        Client(running, Kind.OPEN) as client,
    ):

        def requests_of_the_meter() -> int:
            for _ in range(100):
                client.call(API_VERSIONS, ApiVersionsRequest())
            return honest.window().requests

        honest.window()
        honest.rest()
        # One may have been sent before the meter was told.
        assert requests_of_the_meter() <= 1
        eventually(lambda: requests_of_the_meter() > 1)


@pytest.mark.parametrize("key", sorted(APIS))
def test_every_request_of_the_generator_can_be_encoded(key: int) -> None:
    api = APIS[key]
    for version in range(api.min_supported, api.max_version + 1):
        for case in cases(api, version):
            encode_request(api, version, 1, "test", case.build(30, "-1"))


def test_every_list_of_a_request_has_cases() -> None:
    found = {(case.path, case.form) for case in cases(DESCRIBE_GROUPS, 5)}
    assert (("groups",), Form.UNKNOWN) in found
    assert (("groups",), Form.WIDE) in found
