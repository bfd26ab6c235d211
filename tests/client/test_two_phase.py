"""The client of two-phase transactions: calls, errors and security settings."""

from __future__ import annotations

import asyncio

import pytest
from confluent_kafka import Producer

from penstock.client import NotReachable, TwoPhase
from penstock.client.errors import MisusedClient
from penstock.client.two_phase import _security
from penstock.testing import broker
from penstock.twophase.outcomes import NotSupported, OtherOutcome
from tests.broker.requests import until
from tests.interop.isolation import read


def test_a_transaction_is_prepared_and_committed() -> None:
    async def play(bootstrap: str) -> None:
        async with TwoPhase(bootstrap) as transactions:
            await transactions.check("loader-check")
            producer = Producer(
                {"bootstrap.servers": bootstrap, "transactional.id": "loader-7", "log_level": 2}
            )
            await asyncio.to_thread(producer.init_transactions, 30)
            producer.begin_transaction()
            producer.produce("loaded", b"3 pears", partition=0)
            assert await asyncio.to_thread(producer.flush, 30) == 0
            prepared = await transactions.prepare("loader-7")
            assert prepared is not None
            assert await transactions.open_ids("loader-") == ["loader-7"]
            await transactions.end(prepared, committed=True)
            with pytest.raises(OtherOutcome):
                await transactions.end(prepared, committed=False)
            await transactions.abort("loader-7")

    with broker(config={"transaction.two.phase.commit.enable": "true"}) as running:
        asyncio.run(play(running.bootstrap))
        until(lambda: read(running.bootstrap, "loaded") == [b"3 pears"])


def test_a_cluster_without_two_phase_commit_is_named() -> None:
    async def play(bootstrap: str) -> None:
        async with TwoPhase(bootstrap) as transactions:
            with pytest.raises(NotSupported, match="TwoPhaseCommit"):
                await transactions.check("x")

    with broker() as running:
        asyncio.run(play(running.bootstrap))


def test_a_cluster_that_does_not_respond_is_not_reachable() -> None:
    async def play() -> None:
        async with TwoPhase("127.0.0.1:1", timeout=0.2) as transactions:
            with pytest.raises(NotReachable, match=r"no coordinator responded at 127\.0\.0\.1:1"):
                await transactions.abort("x")

    asyncio.run(play())


def test_security_settings_are_those_of_the_other_clients() -> None:
    assert _security({"linger.ms": 5}) is None
    secured = _security({"security.protocol": "SASL_PLAINTEXT", "sasl.username": "u", "sasl.password": "p"})
    assert secured is not None
    assert secured.protocol == "SASL_PLAINTEXT"
    assert ("sasl.username", "u") in secured.settings
    with pytest.raises(MisusedClient, match="one PEM file"):
        _security({"ssl.key.location": "a.pem", "ssl.certificate.location": "b.pem"})
