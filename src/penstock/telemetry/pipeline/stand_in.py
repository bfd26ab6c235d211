"""Stands for the interpreter of Spark's Python workers: lets the fork server run `-m MODULE` with its files.

    python -IS stand_in.py SOCKET INTERPRETER ARGUMENT...

It starts in 20 ms, because it imports neither `site` nor any package. If there is no fork server, and for all
other arguments, it becomes the interpreter itself.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys

#: A server that is slow on a busy machine is still faster than another interpreter.
ACCEPT_S = 60.0


def main() -> None:
    address, interpreter, *arguments = sys.argv[1:]
    if arguments[:1] == ["-m"]:
        code = forked(address, arguments[1:])
        if code is not None:
            os._exit(code if code >= 0 else 128 - code)
    os.execv(interpreter, [interpreter, *arguments])


def forked(address: str, arguments: list[str]) -> int | None:
    """The exit code of a forked process, after its end; None if there is none."""
    request = {"arguments": arguments, "environment": dict(os.environ), "directory": os.getcwd()}
    content = json.dumps(request).encode()
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(ACCEPT_S)
            connection.connect(address)
            # The standard streams go with the length, by which the server knows how much follows.
            socket.send_fds(connection, [struct.pack("!I", len(content))], [0, 1, 2])
            connection.sendall(content)
            if not connection.recv(1):
                return None
            connection.settimeout(None)
            ended = connection.recv(4)
    except OSError:
        return None
    return int(struct.unpack("!i", ended)[0]) if len(ended) == 4 else 1


if __name__ == "__main__":
    main()
