"""What makes a session of Spark start sooner: forks for its Python processes, and an archive of its classes.

Spark starts several kinds of Python processes for a query, one after the other, and each imports PySpark,
Arrow and the pipeline: a second of CPU. `WorkerForks` gives Spark a script as interpreter. The script runs
this file, as a program, which has the server run `-m MODULE` with its files and environment. The server is a
fork of the driver. Without a server, and for all other arguments, the program becomes the interpreter itself.

    python -IS startup.py SOCKET INTERPRETER ARGUMENT...

Invariants: the server is forked while the driver has one thread. A forked process ends when its program does
(Spark ends workers that way), and all of them end with the driver. Only for Spark on this machine, and on
Linux (pidfds).

A class-data archive (CDS) has the loaded and verified classes of the JVM, which are mapped from its file.
`penstock telemetry prepare` writes it: a JVM that records its classes runs at half the speed, and writes for
seconds at its end. The name of the file depends on all that makes a JVM reject an archive, so an archive is
never out of date. Invariant: a file under its final name is complete, because it is renamed after its JVM has
ended.

Nothing here imports PySpark or Penstock: the program starts without its packages.
"""

from __future__ import annotations

import gc
import hashlib
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
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

__all__ = ["ClassArchive", "WorkerForks", "find_archive"]

_REQUEST_S: Final = 5.0
_REQUEST_BYTES_MAX: Final = 1 << 20
#: A server that is slow on a busy machine is still faster than another interpreter.
_ACCEPT_S: Final = 60.0
_SCRIPT: Final = '#!/bin/sh\nexec "{python}" -IS "{program}" "{address}" "{python}" "$@"\n'


class WorkerForks:
    """The interpreter for Spark's workers, and the server that forks them."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="penstock-workers-"))
        self._address = self._folder / "socket"
        self._pipe: int | None = None
        script = _SCRIPT.format(python=sys.executable, program=__file__, address=self._address)
        path = self._folder / "python"
        path.write_text(script)
        path.chmod(0o700)
        self.python = str(path)

    @staticmethod
    def are_possible() -> bool:
        return hasattr(os, "pidfd_open") and '"' not in f"{sys.executable}{tempfile.gettempdir()}"

    def serve(self, preload: Callable[[], None]) -> None:
        """Fork the server."""
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(self._address))
        listener.listen(64)
        reading, self._pipe = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        if os.fork() == 0:
            _run_server(listener, reading, preload, self._pipe)
        os.close(reading)
        listener.close()

    def close(self) -> None:
        """End the server, and with it all that it has forked."""
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None
        shutil.rmtree(self._folder, ignore_errors=True)


def _run_server(listener: socket.socket, parent: int, preload: Callable[[], None], driver_end: int) -> None:
    """The whole life of the server; never returns. `driver_end` is the driver's end of the pipe `parent`."""
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        os.close(driver_end)
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
        #: by process id: its pidfd, and the connection of its program
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
        """Send the exit code of its process to the program."""
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
        """End a process whose program has ended: a program sends nothing after its request."""
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


def _run_program() -> None:
    """Stand for the interpreter of a Python process of Spark."""
    address, interpreter, *arguments = sys.argv[1:]
    if arguments[:1] == ["-m"]:
        code = _run_in_fork(address, arguments[1:])
        if code is not None:
            os._exit(code if code >= 0 else 128 - code)
    os.execv(interpreter, [interpreter, *arguments])


def _run_in_fork(address: str, arguments: list[str]) -> int | None:
    """The exit code of a forked process, after its end; None if there is none."""
    request = {"arguments": arguments, "environment": dict(os.environ), "directory": os.getcwd()}
    content = json.dumps(request).encode()
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_ACCEPT_S)
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


#: A JVM cannot write an archive if folders with files are in its class path.
_CLASS_PATHS: Final = ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH")
#: By default the JVM writes warnings about archives to standard output, which belongs to the command.
_QUIET: Final = "-Xlog:disable -Xlog:all=error:stderr"


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """The archive of one JVM and one Spark."""

    path: Path

    @property
    def exists(self) -> bool:
        return self.path.is_file()

    @property
    def reading(self) -> str:
        """The options of a JVM that uses it."""
        return f"-XX:SharedArchiveFile={self.path} {_QUIET}"

    @property
    def writing(self) -> str:
        """The options of a JVM that writes it."""
        return f"-XX:ArchiveClassesAtExit={self._written} {_QUIET}"

    def keep(self) -> bool:
        """Publish what a JVM has written that has ended; False if it has written nothing."""
        if not self._written.is_file():
            return False
        self._written.replace(self.path)
        return True

    def discard(self) -> None:
        """Remove what a JVM has written that did not end in order."""
        self._written.unlink(missing_ok=True)

    @property
    def _written(self) -> Path:
        return self.path.with_suffix(f".{os.getpid()}.tmp")


def find_archive(spark_home: Path, environment: Mapping[str, str] = os.environ) -> ClassArchive | None:
    """The archive for the JVM that Spark would start, written or not; None if there can be none."""
    home = environment.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else environment.get("PATH"))
    if java is None or any(environment.get(name) for name in _CLASS_PATHS) or (spark_home / "conf").exists():
        return None
    cache = environment.get("XDG_CACHE_HOME")
    base = Path(cache) if cache else Path(environment.get("HOME", "~")).expanduser() / ".cache"
    try:
        key = _key(Path(java).resolve(), spark_home, environment)
    except OSError:
        return None
    return ClassArchive(base / "penstock" / f"spark-{key}.jsa")


def _key(java: Path, spark_home: Path, environment: Mapping[str, str]) -> str:
    """A digest of the JVM, its options and the class path."""
    jars = spark_home / "jars"
    parts = [str(java), str(java.stat().st_mtime_ns), str(jars), str(jars.stat().st_mtime_ns)]
    parts.append(environment.get("JAVA_TOOL_OPTIONS", ""))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


if __name__ == "__main__":
    _run_program()
