"""The meters of clients: shared quotas, changes of limits, bounds of memory."""

from __future__ import annotations

from penstock.quotas import clients
from penstock.quotas.clients import ClientQuotas
from penstock.quotas.entities import Entity

USER: Entity = (("user", "u"),)
DEFAULT_CLIENT: Entity = (("client-id", None),)


def quotas_of(values: dict[Entity, dict[str, float]]) -> ClientQuotas:
    quotas = ClientQuotas()
    quotas.update(values, object())
    return quotas


def test_clients_of_a_user_share_its_meter() -> None:
    quotas = quotas_of({USER: {"producer_byte_rate": 100.0}})
    one, other = quotas.limits("u", "a", 0), quotas.limits("u", "b", 0)

    assert one is not None and other is not None
    assert one.produce is not None and one.produce is other.produce
    assert one.fetch is None and one.request is None and one.mutations is None
    assert quotas.limits("v", "a", 0) is None


def test_a_default_is_a_limit_for_each_client() -> None:
    quotas = quotas_of({DEFAULT_CLIENT: {"consumer_byte_rate": 100.0}})
    one, other = quotas.limits("u", "a", 0), quotas.limits("u", "b", 0)

    assert one is not None and other is not None and one.fetch is not other.fetch


def test_a_change_of_the_limit_keeps_the_measured_rate() -> None:
    quotas = quotas_of({USER: {"producer_byte_rate": 1000.0}})
    before = quotas.limits("u", "a", 0)
    assert before is not None and before.produce is not None
    before.produce.charge(10_000, 0)

    quotas.update({USER: {"producer_byte_rate": 500.0}}, object())
    after = quotas.limits("u", "a", 0)

    assert after is not None and after.produce is not None and after.produce.throttle_ms(0) > 0


def test_without_quotas_of_clients_there_is_nothing_to_enforce() -> None:
    quotas = quotas_of({(("ip", None),): {"connection_creation_rate": 5.0}})

    assert not quotas.has_any and quotas.limits("u", "a", 0) is None


def test_many_client_ids_do_not_fill_the_memory() -> None:
    quotas = quotas_of({DEFAULT_CLIENT: {"producer_byte_rate": 100.0, "controller_mutation_rate": 1.0}})
    for n in range(3 * clients._METERS_MIN):
        found = quotas.limits("u", f"c{n}", n * 1000)
        assert found is not None and found.produce is not None
        found.produce.charge(1, n * 1000)

    assert len(quotas._meters) <= clients._METERS_MIN + 2
    assert len(quotas._known) <= clients._KNOWN_MAX
