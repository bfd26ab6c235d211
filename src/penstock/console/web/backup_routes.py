"""Route of the state of a running backup: the age of its newest cut, and its last verification."""

from __future__ import annotations

import asyncio
from typing import Any, Final
from urllib.error import URLError
from urllib.request import urlopen

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.console.kafka.cluster import NotReachable
from penstock.console.web.answers import as_json
from penstock.console.web.sessions import Sessions

__all__ = ["BackupStatus", "backup_routes"]

_TIMEOUT_S: Final = 5.0
_ANSWER_MAX: Final = 64 << 10


class _Status(msgspec.Struct):
    """What `penstock backup run --metrics` serves at /status."""

    interval_s: float | None = None
    newest_cut_age_s: float | None = None
    is_late: bool = False
    failures: int = 0
    verification_interval_s: float | None = None
    verified_age_s: float | None = None
    is_unverified: bool = False
    unrestorable_partitions: int | None = None


class BackupStatus:
    """A backup that runs, at the address of its `--metrics`."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")

    async def get(self) -> dict[str, Any]:
        """Its state now; NotReachable if it does not respond."""
        return await asyncio.to_thread(self._get)

    def _get(self) -> dict[str, Any]:
        try:
            with urlopen(f"{self.url}/status", timeout=_TIMEOUT_S) as answer:
                found = msgspec.json.decode(answer.read(_ANSWER_MAX), type=_Status)
        except (URLError, OSError, msgspec.MsgspecError) as error:
            raise NotReachable(f"the backup at {self.url} does not respond: {error}") from error
        return msgspec.structs.asdict(found)


def backup_routes(sessions: Sessions, backup: BackupStatus | None) -> list[Route]:
    """No route without a backup: the overview shows none then."""
    if backup is None:
        return []

    async def status(request: Request) -> Response:
        sessions.of(request)
        return as_json(await backup.get())

    return [Route("/api/backup", status)]
