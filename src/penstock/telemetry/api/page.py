"""A page that lists the API's operations, from the document that describes them.

It is plain HTML without external scripts, because the server may have no internet access.
"""

from __future__ import annotations

from html import escape
from typing import Any, Final

__all__ = ["operations_page"]

_STYLE: Final = (
    "body{font:16px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}"
    "section{border-top:1px solid #ccc}code{font-size:1.1em}"
)


def operations_page(document: dict[str, Any]) -> str:
    """All operations of an OpenAPI document; those whose path is complete are links."""
    title = escape(document["info"]["title"])
    sections = "".join(
        _section(path, operation)
        for path, operations in document["paths"].items()
        for operation in operations.values()
    )
    return (
        f"<!DOCTYPE html><html lang=en><meta charset=utf-8><title>{title}</title><style>{_STYLE}</style>"
        f"<h1>{title}</h1><p>{escape(document['info']['summary'])} The OpenAPI document: "
        f"<a href=openapi.json>openapi.json</a>.</p>{sections}</html>"
    )


def _section(path: str, operation: dict[str, Any]) -> str:
    parameters = "".join(
        f"<li><code>{escape(each['name'])}</code> {escape(each['description'])}</li>"
        for each in operation.get("parameters", [])
    )
    shown = escape(path)
    link = shown if "{" in path else f'<a href="{shown}">{shown}</a>'
    return (
        f"<section><h2><code>GET {link}</code></h2><p><b>{escape(operation['summary'])}.</b> "
        f"{escape(operation['description'])}</p><ul>{parameters}</ul></section>"
    )
