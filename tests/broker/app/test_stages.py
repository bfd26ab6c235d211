"""A broker is composed of frozen stages, and nothing runs before it is started (ADR 16)."""

from __future__ import annotations

import asyncio
from dataclasses import FrozenInstanceError, fields, is_dataclass
from typing import Any

import pytest

from penstock.broker.app.broker import Broker
from penstock.broker.app.server import system_world
from penstock.model.config import BrokerConfig

ALONE = {"listeners": "PLAINTEXT://127.0.0.1:0", "penstock.memory": "true"}
CLUSTERED = {
    **ALONE,
    "listeners": "PLAINTEXT://127.0.0.1:0,INTERNAL://127.0.0.1:0",
    "node.id": "1",
    "controller.quorum.voters": "1@127.0.0.1:1",
}


async def opened(settings: dict[str, str]) -> Broker:
    config = BrokerConfig(settings)
    return await Broker.open(config, system_world(config), is_process=True)


@pytest.mark.parametrize("settings", [ALONE, CLUSTERED])
def test_no_constructor_starts_work(settings: dict[str, str]) -> None:
    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        scheduled: list[object] = []
        for name in ("call_later", "call_at"):
            setattr(loop, name, lambda *work, **_: scheduled.append(work))
        broker = await opened(settings)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert scheduled == []
        for name in ("call_later", "call_at"):
            delattr(loop, name)
        await broker.abort()

    asyncio.run(main())


def test_nothing_is_assigned_to_a_stage() -> None:
    async def main() -> None:
        broker = await opened(ALONE)
        stages = [getattr(broker.stages, field.name) for field in fields(broker.stages)]
        records: list[Any] = [broker, broker.stages, broker.serving]
        records += [stage for stage in stages if is_dataclass(stage)]
        assert len(records) == 9
        for record in records:
            with pytest.raises(FrozenInstanceError):
                setattr(record, fields(record)[0].name, None)
        await broker.abort()

    asyncio.run(main())
