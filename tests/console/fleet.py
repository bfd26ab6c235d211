"""A small telemetry API that needs a token, with one host of two GPUs."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["telemetry_api"]

GPU: dict[str, Any] = {
    "gpu_id": "GPU-1",
    "hostname": "node-1",
    "model": "H200",
    "workload": "train",
    "pod": None,
    "state": "busy",
    "findings": [],
    "evidence": None,
    "gpu_util_percent": 97.0,
    "memory_used_share": 0.5,
    "power_w": 600.0,
    "temperature_c": 60.0,
}
IDLE = GPU | {"gpu_id": "GPU-2", "state": "idle_occupied", "gpu_util_percent": 0.0, "findings": ["hot"]}
ALERT = {
    "rule": "idle_occupied",
    "subject": "GPU-2",
    "state": "open",
    "severity": "warning",
    "since": "2030-01-01T00:00:00Z",
    "hostname": "node-1",
    "evidence": "0 % busy with 70 GiB allocated",
    "action": "stop the job",
}
ANSWERS: dict[str, Any] = {
    "/api/v1/fleet/now": {
        "newest_sample": "2030-01-01T00:10:00Z",
        "gpus": {"busy": 1, "idle_occupied": 1},
        "total": 2,
        "items": [GPU, IDLE],
    },
    "/api/v1/alerts": {"items": [ALERT], "next_cursor": None},
    "/api/v1/gpus/GPU-1/telemetry": {
        "gpu_id": "GPU-1",
        "resolution": "raw",
        "items": [
            {"timestamp": "2030-01-01T00:00:00Z", "metric": "gpu_util", "unit": "%", "value": 5.0},
            {"timestamp": "2030-01-01T00:00:10Z", "metric": "gpu_util", "unit": "%", "mean": 7.0},
        ],
    },
}


class _Api(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.server.requested.append(self.path)  # type: ignore[attr-defined]
        answers = self.server.answers  # type: ignore[attr-defined]
        found = answers.get(self.path.partition("?")[0].replace("GPU-2", "GPU-1"))
        allowed = self.headers.get("Authorization") == "Bearer s3cret"
        self.send_response(401 if not allowed else 200 if found is not None else 404)
        self.end_headers()
        self.wfile.write(json.dumps(found if allowed else {"detail": "no token"}).encode())

    def log_message(self, *_: object) -> None:
        """Tests are quiet."""


@contextmanager
def telemetry_api(answers: dict[str, Any] | None = None) -> Iterator[tuple[str, list[str]]]:
    """The address of an API with these responses by path, and the paths of its requests."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Api) as server:
        server.answers = answers or ANSWERS  # type: ignore[attr-defined]
        server.requested = []  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", server.requested  # type: ignore[attr-defined]
        finally:
            server.shutdown()
            thread.join()
