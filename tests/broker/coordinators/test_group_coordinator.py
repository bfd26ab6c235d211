"""The composition of the group coordinator."""

from __future__ import annotations

import asyncio

import pytest

from penstock.broker.app.broker import Broker
from penstock.broker.app.server import system_world
from penstock.model.config import BrokerConfig
from penstock.model.errors import InvalidConfig


def test_an_unknown_assignor_keeps_the_broker_from_starting() -> None:
    config = BrokerConfig({"group.consumer.assignors": "uniform,magic", "penstock.memory": "true"})
    with pytest.raises(InvalidConfig, match="'magic'"):
        asyncio.run(Broker.open(config, system_world(config)))
