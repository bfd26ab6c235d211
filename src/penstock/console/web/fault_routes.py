"""Fault buttons for development: kill, pause and start brokers of a cluster on this machine.

There are no routes without `--faults`, which needs the folder of a local cluster.
"""

from __future__ import annotations

from typing import Final, Protocol

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.console.web.answers import BadInput, as_json, body_of
from penstock.console.web.sessions import Sessions

__all__ = ["FAULTS", "Faults", "fault_routes"]

#: in the order of the buttons
FAULTS: Final = ("kill", "stop", "pause", "resume", "start")


class Faults(Protocol):
    """Processes of local brokers."""

    def brokers(self) -> dict[int, str]:
        """The state of each broker's process: running, paused or stopped."""
        ...

    async def act(self, broker: int, fault: str) -> None:
        """Do one of `FAULTS` to a broker; raises PenstockError with the reason if it fails."""
        ...


class Fault(msgspec.Struct):
    broker: int
    fault: str


def fault_routes(sessions: Sessions, faults: Faults | None) -> list[Route]:
    if faults is None:
        return []

    async def states(request: Request) -> Response:
        sessions.of(request)
        return as_json({"brokers": {str(broker): state for broker, state in faults.brokers().items()}})

    async def act(request: Request) -> Response:
        sessions.of(request)
        wanted = await body_of(request, Fault)
        if wanted.fault not in FAULTS:
            raise BadInput(f"{wanted.fault!r} is not one of {', '.join(FAULTS)}")
        if wanted.broker not in faults.brokers():
            raise BadInput(f"broker {wanted.broker} is not a broker of this machine")
        await faults.act(wanted.broker, wanted.fault)
        return as_json({"brokers": {str(broker): state for broker, state in faults.brokers().items()}})

    return [Route("/api/faults", states), Route("/api/faults", act, methods=["POST"])]
