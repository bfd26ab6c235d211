"""Forks the Python processes of a local Spark session from one that has imported the pipeline.

Spark starts several kinds of Python processes for a query, one after the other, and each imports PySpark,
Arrow and the pipeline: a second of CPU. `WorkerForks` gives Spark a `stand_in` as interpreter. The server, a
fork of the driver, runs the module that the stand-in was started with, on its files and environment.

Invariants: the server is forked while the driver has one thread. A forked process ends when its stand-in does
(Spark ends workers that way), and all of them end with the driver.

Only for Spark on this machine, and on Linux (pidfds).
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import selectors
import shutil
import signal
import socket
import struct
import sys
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from penstock.telemetry.pipeline import stand_in

__all__ = ["WorkerForks"]

_REQUEST_S: Final = 5.0
_REQUEST_BYTES_MAX: Final = 1 << 20
_SCRIPT: Final = '#!/bin/sh\nexec "{python}" -IS "{stand_in}" "{address}" "{python}" "$@"\n'


class WorkerForks:
    """The interpreter for Spark's workers, and the server that forks them."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="penstock-workers-"))
        self._address = self._folder / "socket"
        self._pipe: int | None = None
        script = _SCRIPT.format(python=sys.executable, stand_in=stand_in.__file__, address=self._address)
        path = self._folder / "python"
        path.write_text(script)
        path.chmod(0o700)
        self.python = str(path)

    @staticmethod
    def are_possible() -> bool:
        return hasattr(os, "pidfd_open") and '"' not in f"{sys.executable}{tempfile.gettempdir()}"

    def serve(self, preload: Callable[[], None], closes: Iterable[int] = ()) -> None:
        """Fork the server. `closes` are files of the driver that must not stay open in it."""
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(self._address))
        listener.listen(64)
        reading, self._pipe = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        if os.fork() == 0:
            _run_server(listener, reading, preload, [*closes, self._pipe])
        os.close(reading)
        listener.close()

    def close(self) -> None:
        """End the server, and with it all that it has forked."""
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None
        shutil.rmtree(self._folder, ignore_errors=True)


def _run_server(
    listener: socket.socket, parent: int, preload: Callable[[], None], closes: Iterable[int]
) -> None:
    """The whole life of the server; never returns."""
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        for each in closes:
            os.close(each)
        preload()
        gc.freeze()
        code = _Server(listener, parent).run()
    finally:
        os._exit(code)


class _Server:
    def __init__(self, listener: socket.socket, parent: int) -> None:
        self._listener = listener
        self._parent = parent
        self._selector = selectors.DefaultSelector()
        #: by process id: its pidfd, and the connection of its stand-in
        self._children: dict[int, tuple[int, socket.socket]] = {}

    def run(self) -> int:
        self._selector.register(self._parent, selectors.EVENT_READ)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        while True:
            for key, _ in self._selector.select():
                if key.data is None:
                    self._end_all()
                    return 0
                key.data()

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        connection.settimeout(_REQUEST_S)
        try:
            request, files = _receive(connection)
        except (OSError, ValueError):
            connection.close()
            return
        pid = os.fork()
        if pid == 0:
            self._close_all()
            connection.close()
            _become(request, files)
        for each in files:
            os.close(each)
        self._watch(pid, connection)

    def _watch(self, pid: int, connection: socket.socket) -> None:
        process = os.pidfd_open(pid)
        self._children[pid] = process, connection
        self._selector.register(process, selectors.EVENT_READ, lambda: self._ended(pid))
        self._selector.register(connection, selectors.EVENT_READ, lambda: self._abandoned(pid))
        with suppress(OSError):
            connection.sendall(b"+")

    def _ended(self, pid: int) -> None:
        """Send the exit code of its process to the stand-in."""
        _, status = os.waitpid(pid, 0)
        process, connection = self._children.pop(pid)
        self._selector.unregister(process)
        os.close(process)
        with suppress(OSError):
            connection.sendall(struct.pack("!i", os.waitstatus_to_exitcode(status)))
        with suppress(KeyError):  # it was abandoned before
            self._selector.unregister(connection)
        connection.close()

    def _abandoned(self, pid: int) -> None:
        """End a process whose stand-in has ended: a stand-in sends nothing after its request."""
        _, connection = self._children[pid]
        self._selector.unregister(connection)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)

    def _end_all(self) -> None:
        for pid in self._children:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    def _close_all(self) -> None:
        """Close what belongs to the server, in a forked process."""
        self._selector.close()
        self._listener.close()
        os.close(self._parent)
        for process, connection in self._children.values():
            os.close(process)
            connection.close()


def _receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """A request, and the three standard streams that came with it."""
    head, files, _, _ = socket.recv_fds(connection, 4, 3)
    (length,) = struct.unpack("!I", head) if len(head) == 4 else (0,)
    content = b""
    while len(content) < length <= _REQUEST_BYTES_MAX and (part := connection.recv(length - len(content))):
        content += part
    if len(files) != 3 or not content or len(content) != length:
        for each in files:
            os.close(each)
        raise ValueError("not a whole request")
    return json.loads(content), files


def _become(request: dict[str, Any], files: list[int]) -> None:
    """Run the module as an interpreter would, in a process that was just forked; never returns."""
    code = 1
    try:
        for number, each in enumerate(files):
            os.dup2(each, number)
            os.close(each)
        os.environ.clear()
        os.environ.update(request["environment"])
        os.chdir(request["directory"])
        module, *arguments = request["arguments"]
        sys.argv = [module, *arguments]
        # It may have been imported for its functions; as a program it runs once more.
        sys.modules.pop(module, None)
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    except BaseException:  # noqa: BLE001 - an interpreter prints it, too
        sys.excepthook(*sys.exc_info())
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
