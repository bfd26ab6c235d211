"""Addresses of brokers as text: HOST:PORT, with brackets around an IPv6 address."""

from __future__ import annotations

from typing import TypeAlias

__all__ = ["Address", "address_text", "bracketed", "parse_address", "parse_bootstrap"]

Address: TypeAlias = tuple[str, int]


def parse_address(text: str) -> Address:
    """Host and port of HOST:PORT; ValueError with the reason if it has another form."""
    host, _, port = text.strip().rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"{text.strip()!r} is not HOST:PORT")
    return host.strip("[]"), int(port)


def parse_bootstrap(text: str) -> list[Address]:
    """The addresses of `HOST:PORT,HOST:PORT`; ValueError if one has another form."""
    return [parse_address(each) for each in text.split(",")]


def bracketed(host: str) -> str:
    """A host as it stands before a port."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def address_text(host: str, port: int) -> str:
    """An address as HOST:PORT."""
    return f"{bracketed(host)}:{port}"
