"""Runs the search over APIs, versions, fields and kinds of clients.

Each API gets brokers of its own, one without an authorizer and one with: a request may create ten thousand
topics, or set a quota for the client itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final

from lab.stall_meter import StallMeter
from penstock.wire.api import Api
from penstock.wire.apis import APIS
from penstock.wire.apis.api_versions import API_VERSIONS, ApiVersionsRequest
from tests.hostile.clients import Client, Kind, prepare
from tests.hostile.large import Form, cases
from tests.hostile.meter import Meter
from tests.hostile.search import Failure, Search
from tests.hostile.target import SECURED, Target, target

__all__ = ["Plan", "Report", "served_apis", "sweep"]

#: settings of the broker and kinds of its clients
BROKERS: Final[tuple[tuple[dict[str, str], tuple[Kind, ...]], ...]] = (
    ({}, (Kind.OPEN,)),
    (SECURED, (Kind.DENIED, Kind.PARTLY, Kind.SUPER)),
)


@dataclass(frozen=True)
class Plan:
    """What a sweep covers."""

    #: the N of growth, and the size at which no request may stall
    small: int
    largest: int
    #: names of APIs; all if empty
    apis: Collection[str] = ()
    #: every version, or only the latest
    every_version: bool = True
    #: of every version, only the oldest and the latest
    only_ends: bool = False
    kinds: Collection[Kind] = tuple(Kind)
    forms: Collection[Form] = tuple(Form)
    #: keep the brokers between APIs; for few and small requests
    shared: bool = False
    shrinks: bool = True
    honest: bool = True


@dataclass
class Report:
    """The outcome of a sweep."""

    failures: list[Failure] = field(default_factory=list)
    requests: int = 0
    worst_step: tuple[float, str] = (0.0, "")
    worst_growth: tuple[float, str] = (0.0, "")

    def add(self, search: Search) -> None:
        self.failures += search.failures
        self.requests += search.requests
        self.worst_step = max(self.worst_step, search.worst_step)
        self.worst_growth = max(self.worst_growth, search.worst_growth)


def served_apis(running: Target) -> list[Api[Any, Any]]:
    """The APIs that a broker advertises to clients."""
    request = ApiVersionsRequest(client_software_name="hostile", client_software_version="1")
    with Client(running, Kind.OPEN) as client:
        answer = client.call(API_VERSIONS, request)
    return [APIS[each.api_key] for each in answer.api_keys]


def sweep(plan: Plan, say: Callable[[str], None]) -> Report:
    """Run the plan."""
    with target() as running:
        apis = [api for api in served_apis(running) if not plan.apis or api.name in plan.apis]
    # Quotas throttle the clients of this test, too.
    apis.sort(key=lambda api: api.name == "AlterClientQuotas")
    report = Report()
    for settings, kinds in BROKERS:
        wanted = [kind for kind in kinds if kind in plan.kinds]
        for group in [apis] if plan.shared else [[api] for api in apis]:
            if wanted:
                with _searching(plan, settings) as (search, topic_ids):
                    for api in group:
                        _sweep_api(plan, search, api, topic_ids, wanted, say)
                report.add(search)
    return report


@contextmanager
def _searching(plan: Plan, settings: dict[str, str]) -> Iterator[tuple[Search, tuple[bytes, ...]]]:
    with target(settings) as running:
        topic_ids = prepare(running)
        honest = StallMeter(running.ports["PLAINTEXT"], running.loop_thread) if plan.honest else None
        try:
            meter = Meter(running, honest)
            yield Search(meter, plan.small, plan.largest, shrinks=plan.shrinks), topic_ids
            meter.close()
        finally:
            if honest is not None:
                honest.close()


def _sweep_api(
    plan: Plan,
    search: Search,
    api: Api[Any, Any],
    topic_ids: tuple[bytes, ...],
    kinds: Collection[Kind],
    say: Callable[[str], None],
) -> None:
    began, failed = monotonic(), len(search.failures)
    first = api.min_supported if plan.every_version else api.max_version
    step = max(1, api.max_version - first) if plan.only_ends else 1
    for version in range(first, api.max_version + 1, step):
        found = [case for case in cases(api, version, topic_ids) if case.form in plan.forms]
        search.run(found, kinds)
    for failure in search.failures[failed:]:
        say(str(failure))
    bad = len(search.failures) - failed
    say(f"{api.name} ({', '.join(kinds)}): {monotonic() - began:.1f} s, {bad or 'no'} failures")
