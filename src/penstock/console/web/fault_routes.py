"""Fault buttons for development: kill, pause, cut off and start brokers of a cluster on this machine.

There are no routes without `--faults`, which needs the folder of a local cluster.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.console.web.answers import BadInput, as_json, body_of
from penstock.console.web.sessions import Sessions

__all__ = ["Faults", "LocalBroker", "fault_routes"]


class LocalBroker(NamedTuple):
    """The state of a broker's process (running, paused, cut off, stopped), and its possible faults."""

    state: str
    faults: tuple[str, ...]


class Faults(Protocol):
    """Processes of local brokers."""

    def brokers(self) -> dict[int, LocalBroker]: ...

    async def act(self, broker: int, fault: str) -> None:
        """Do one of its faults to a broker; raises PenstockError with the reason if it fails."""
        ...


class Fault(msgspec.Struct):
    broker: int
    fault: str


def fault_routes(sessions: Sessions, faults: Faults | None) -> list[Route]:
    if faults is None:
        return []

    async def states(request: Request) -> Response:
        sessions.of(request)
        return _shown(faults)

    async def act(request: Request) -> Response:
        sessions.of(request)
        wanted = await body_of(request, Fault)
        known = faults.brokers()
        if wanted.broker not in known:
            raise BadInput(f"broker {wanted.broker} is not a broker of this machine")
        broker = known[wanted.broker]
        if wanted.fault not in broker.faults:
            possible = ", ".join(broker.faults)
            raise BadInput(
                f"broker {wanted.broker} is {broker.state}: {wanted.fault!r} is not one of {possible}"
            )
        await faults.act(wanted.broker, wanted.fault)
        return _shown(faults)

    return [Route("/api/faults", states), Route("/api/faults", act, methods=["POST"])]


def _shown(faults: Faults) -> Response:
    return as_json({"brokers": {str(broker): known._asdict() for broker, known in faults.brokers().items()}})
