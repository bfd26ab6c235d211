"""The page for people: all operations, in plain HTML."""

from __future__ import annotations

from html import escape
from html.parser import HTMLParser

from fastapi.testclient import TestClient

from penstock.telemetry.api.page import operations_page


class Seen(HTMLParser):
    """What a browser would find."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.addresses: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("href", "src", "action")]


def test_every_operation_is_there_and_nothing_from_elsewhere(client: TestClient) -> None:
    answer = client.get("/docs")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    seen = Seen(answer.text)
    assert seen.tags.isdisjoint({"script", "link", "img"})
    paths = client.get("/openapi.json").json()["paths"]
    complete = [path for path in paths if "{" not in path]
    assert seen.addresses == ["openapi.json", *complete]
    assert "GET /api/v1/gpus/{uuid}/telemetry<" in answer.text
    for operations in paths.values():
        for parameter in operations["get"].get("parameters", []):
            assert f"<code>{parameter['name']}</code> {escape(parameter['description'])}<" in answer.text


def test_texts_are_texts() -> None:
    operation = {"summary": "<b>", "description": "a & b", "parameters": []}
    document = {"info": {"title": "<i>", "summary": ""}, "paths": {"/<x>": {"get": operation}}}
    page = operations_page(document)
    assert "<i>" not in page
    assert "<x>" not in page
    assert "a &amp; b" in page
