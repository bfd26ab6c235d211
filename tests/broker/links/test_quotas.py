"""Quotas of the source that a link sets here."""

from __future__ import annotations

from penstock.cli.quotas import alter_quotas, list_quotas
from penstock.testing import broker
from tests.broker.links.clusters import DEFAULTS, create, ends_at, lines, link, send
from tests.broker.links.commands import alter_link
from tests.waiting import eventually

_RATE = "producer_byte_rate"


def set_quota(bootstrap: str, user: str, limit: float | None) -> None:
    with lines(bootstrap) as line:
        alter_quotas(line, {"user": user}, {_RATE: limit}, False)


def quotas(bootstrap: str) -> dict[str, int]:
    with lines(bootstrap) as line:
        return {row["user"]: row["limit"] for row in list_quotas(line, {})}


def test_quotas_are_mirrored_and_only_those_of_the_link_are_changed() -> None:
    """Also after a restart of the broker that set them, and not any more once it is switched off."""
    with broker(config=DEFAULTS) as source, broker(config=DEFAULTS) as destination:
        old, new = source.bootstrap, destination.bootstrap
        create(old, "orders")
        for user in ("team-a", "team-b", "team-c", "root"):
            set_quota(old, user, 1000)
        set_quota(new, "team-c", 5)
        link(new, old, topics="orders", quotas="team-*")
        eventually(lambda: quotas(new) == {"team-a": 1000, "team-b": 1000, "team-c": 5})
        destination.kill()
        destination.start()
        set_quota(old, "team-a", 2000)
        set_quota(old, "team-b", None)
        set_quota(old, "team-c", None)
        eventually(lambda: quotas(new) == {"team-a": 2000, "team-c": 5})
        with lines(new) as line:
            alter_link(line, "west", {"quotas": None})
        set_quota(old, "team-a", None)
        send(old, "orders", range(3))
        ends_at(new, "orders", 3)
        assert quotas(new) == {"team-a": 2000, "team-c": 5}
