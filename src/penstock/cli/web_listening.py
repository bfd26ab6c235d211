"""Addresses of the web servers that commands run: their exposure, their sockets, their URLs."""

from __future__ import annotations

import socket

import typer

from penstock.cli.failure import Failure, misused

__all__ = ["check_exposure", "listening_on", "url_of"]


def check_exposure(host: str, is_secured: bool, allow_insecure: bool, danger: str, remedy: str) -> None:
    """Refuse to serve other machines without protection, unless the user accepts the risk.

    `danger` completes "the host serves", and `remedy` names the options that protect it.
    """
    from penstock.model.config.listeners import is_loopback

    if is_secured or is_loopback(host):
        return
    if not allow_insecure:
        misused(
            f"{host} would serve {danger}: set {remedy}, bind loopback with --host 127.0.0.1, or accept the "
            f"risk with --allow-insecure"
        )
    typer.echo(f"{host} serves {danger} (--allow-insecure)", err=True)


def listening_on(host: str, port: int) -> socket.socket:
    """A listening socket; a Failure if the address is taken or not of this machine."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        reason = error.strerror or error
        raise Failure(
            f"cannot listen on {host} port {port}: {reason}; choose another --host or --port"
        ) from error


def url_of(host: str, listening: socket.socket, has_tls: bool) -> str:
    own = f"[{host}]" if ":" in host else host
    return f"{'https' if has_tls else 'http'}://{own}:{listening.getsockname()[1]}"
