"""The requests of the monitoring port."""

from __future__ import annotations

from http import HTTPStatus

import pytest

from penstock.observability.exposition import Format
from penstock.observability.http import (
    BadRequest,
    Request,
    accepted_format,
    head_end,
    may_read,
    parse_head,
    response_head,
)


def test_a_request_and_its_end() -> None:
    head = b"GET /metrics?name=a HTTP/1.1\r\nHost: localhost:9404\r\nAccept: */*\r\n\r\n"
    assert head_end(head + b"GET") == len(head)
    assert head_end(head[:-1]) == 0
    assert parse_head(head) == Request(
        "GET", "/metrics", {"host": "localhost:9404", "accept": "*/*"}, keeps_alive=True, query="name=a"
    )


@pytest.mark.parametrize(
    ("version", "connection", "keeps_alive"),
    [("1.1", "close", False), ("1.1", "", True), ("1.0", "", False), ("1.0", "keep-alive", True)],
)
def test_which_connections_stay_open(version: str, connection: str, keeps_alive: bool) -> None:
    head = f"GET / HTTP/{version}\r\nConnection: {connection}\r\n\r\n".encode()
    assert parse_head(head).keeps_alive is keeps_alive


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (b"GET /\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (b"GET / HTTP/2\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (b"GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (b"GET / HTTP/1.1\r\nA : b\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (b"POST / HTTP/1.1\r\n\r\n", HTTPStatus.METHOD_NOT_ALLOWED),
    ],
)
def test_malformed_requests(head: bytes, status: HTTPStatus) -> None:
    with pytest.raises(BadRequest) as refused:
        parse_head(head)
    assert refused.value.status is status


def test_a_head_without_an_end_is_bounded() -> None:
    with pytest.raises(BadRequest):
        head_end(b"x" * 9000)


@pytest.mark.parametrize(
    ("accept", "text_format"),
    [
        ("", Format.PROMETHEUS),
        ("*/*", Format.PROMETHEUS),
        ("text/plain", Format.PROMETHEUS),
        ("application/openmetrics-text", Format.OPENMETRICS),
        ("application/openmetrics-text;version=1.0.0,text/plain;q=0.5", Format.OPENMETRICS),
        ("application/openmetrics-text;q=0.3,text/plain;q=0.5", Format.PROMETHEUS),
        ("application/openmetrics-text;q=x", Format.PROMETHEUS),
        # Prometheus 3
        (
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,"
            "application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;q=0.3,*/*;q=0.1",
            Format.OPENMETRICS,
        ),
    ],
)
def test_the_format_follows_the_accept_header(accept: str, text_format: Format) -> None:
    assert accepted_format(accept) is text_format


def test_tokens() -> None:
    def request(authorization: str) -> Request:
        return Request("GET", "/metrics", {"authorization": authorization}, True)

    assert may_read(Request("GET", "/metrics", {}, True), None)
    assert may_read(request("Bearer secret"), "secret")
    assert may_read(request("bearer  secret"), "secret")
    for wrong in ("", "secret", "Basic secret", "Bearer", "Bearer secrets"):
        assert not may_read(request(wrong), "secret")


def test_a_response_names_its_length() -> None:
    head = response_head(HTTPStatus.OK, "text/plain", 12, keeps_alive=False).decode()
    assert head.startswith("HTTP/1.1 200 OK\r\n")
    assert "Content-Length: 12\r\n" in head
    assert head.endswith("Connection: close\r\n\r\n")
