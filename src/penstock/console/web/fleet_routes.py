"""Routes of the GPU fleet: a fixed set of questions to the telemetry API, in the name of the console."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode
from urllib.request import Request as HttpRequest
from urllib.request import urlopen

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.console.kafka.cluster import NotReachable, Refused
from penstock.console.web.answers import as_json, whole
from penstock.console.web.sessions import Sessions

__all__ = ["Telemetry", "fleet_routes"]

_TIMEOUT_S: Final = 10.0
_ANSWER_MAX: Final = 32 << 20
_GPUS_MAX: Final = 10_000
#: the metrics of the page of one GPU
_METRICS: Final = (
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_DEV_GPU_TEMP",
    "DCGM_FI_DEV_FB_USED",
)


class Telemetry:
    """The telemetry API at a URL, with its token if it needs one."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self.url = url.rstrip("/")
        self._token = token

    async def get(self, path: str, query: Mapping[str, Any] | None = None) -> Any:
        """A response of the API; NotReachable, or Refused with the API's own reason."""
        return await asyncio.to_thread(self._get, path, query or {})

    def _get(self, path: str, query: Mapping[str, Any]) -> Any:
        headers = {} if self._token is None else {"Authorization": f"Bearer {self._token}"}
        request = HttpRequest(f"{self.url}{path}?{urlencode(query, doseq=True)}", headers=headers)
        try:
            with urlopen(request, timeout=_TIMEOUT_S) as answer:
                return msgspec.json.decode(answer.read(_ANSWER_MAX))
        except HTTPError as error:
            with error:
                problem = error.read(10_000).decode(errors="replace")
            raise Refused(
                "TELEMETRY_REFUSED", f"the telemetry API answers {error.code}: {problem[:300]}"
            ) from error
        except (URLError, OSError, msgspec.DecodeError) as error:
            raise NotReachable(f"the telemetry API at {self.url} does not respond: {error}") from error


def fleet_routes(sessions: Sessions, telemetry: Telemetry | None) -> list[Route]:
    """No routes without a telemetry API: the page is hidden then."""
    if telemetry is None:
        return []

    async def fleet(request: Request) -> Response:
        sessions.of(request)
        now, alerts = await asyncio.gather(
            telemetry.get("/api/v1/fleet/now", {"limit": _GPUS_MAX}),
            telemetry.get("/api/v1/alerts", {"limit": 200}),
        )
        return as_json({**now, "alerts": alerts["items"]})

    async def gpu(request: Request) -> Response:
        sessions.of(request)
        minutes = whole(request, "minutes", 15, 1, 24 * 60)
        now = await telemetry.get("/api/v1/fleet/now", {"limit": 1})
        query: dict[str, Any] = {"metric": _METRICS, "limit": 10_000}
        newest = now["newest_sample"]
        if newest is not None:
            query["start_time"] = _before(newest, minutes)
        uuid = quote(request.path_params["uuid"], safe="")
        page = await telemetry.get(f"/api/v1/gpus/{uuid}/telemetry", query)
        return as_json(
            {"gpu_id": page["gpu_id"], "resolution": page["resolution"], "series": _series(page["items"])}
        )

    return [Route("/api/fleet", fleet), Route("/api/fleet/{uuid}", gpu)]


def _before(moment: str, minutes: int) -> str:
    return (datetime.fromisoformat(moment) - timedelta(minutes=minutes)).isoformat()


def _series(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Points of each metric: values of samples, means of windows."""
    found: dict[str, dict[str, Any]] = {}
    for item in items:
        own = found.setdefault(item["metric"], {"metric": item["metric"], "unit": item["unit"], "points": []})
        value = item.get("value", item.get("mean"))
        if value is not None:
            own["points"].append((datetime.fromisoformat(item["timestamp"]).timestamp(), value))
    return list(found.values())
