"""Connects many clients to a broker at once, and keeps the connections until standard input is closed.

    python -m tests.hostile.storm PORT NUMBER PLAIN|TLS

All sockets connect first: the broker finds them in its backlog together. With TLS, all clients then send
their first handshake message. A line on standard output says that all handshakes are done.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys

from tests.secured import HOST


async def _connect_all(port: int, number: int, context: ssl.SSLContext | None) -> None:
    sockets = []
    for _ in range(number):
        each = socket.socket()
        each.setblocking(False)
        # Connected by the kernel, before the broker accepts it.
        each.connect_ex((HOST, port))
        sockets.append(each)
    ends = await asyncio.gather(*(_secured(each, context) for each in sockets))
    print("connected", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    for writer in ends:
        writer.close()


async def _secured(each: socket.socket, context: ssl.SSLContext | None) -> asyncio.StreamWriter:
    if context is None:
        return (await asyncio.open_connection(sock=each))[1]
    _, writer = await asyncio.open_connection(
        sock=each, ssl=context, server_hostname=HOST, ssl_handshake_timeout=90
    )
    return writer


def main() -> None:
    port, number, kind = sys.argv[1:]
    context = None
    if kind == "TLS":
        # The broker's authority is made anew in each process of the tests.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    asyncio.run(_connect_all(int(port), int(number), context))


if __name__ == "__main__":
    main()
