"""Messages over the console's own routes."""

from __future__ import annotations

from typing import Any

from starlette.testclient import TestClient

__all__ = ["produce", "read"]


def produce(console: TestClient, topic: str, value: object, key: str | None = None, **more: Any) -> Any:
    part = {"format": "null"} if value is None else value if isinstance(value, dict) else {"text": value}
    body = {"key": {"format": "null"} if key is None else {"text": key}, "value": part, **more}
    response = console.post(f"/api/topics/{topic}/messages", json=body)
    assert response.status_code == 200, response.text
    return response.json()


def read(console: TestClient, topic: str, **query: Any) -> Any:
    response = console.get(f"/api/topics/{topic}/messages", params=query)
    assert response.status_code == 200, response.text
    return response.json()
