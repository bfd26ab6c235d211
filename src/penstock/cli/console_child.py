"""The console beside a broker of `penstock up`: a process of its own that ends with the broker.

The console of a broker with SASL has no rights of its own: its visitors log in. So the child gets the
protocol, the mechanism and the certificates to trust, and no secret of the broker.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from penstock.cli.failure import misused
from penstock.model.config.encryption_keys import FILE_PROVIDER

if TYPE_CHECKING:
    from penstock.model.config import BrokerConfig

__all__ = ["ConsoleChild", "ConsoleClient", "client_of", "end_with_stdin", "history_of"]

_END_S: Final = 5.0
#: in a data directory, beside the folders of the broker
_HISTORY: Final = "console"
_CERTIFICATE: Final = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


class ConsoleClient(NamedTuple):
    """Client configs of a console, and the certificates that it trusts as PEM, None for the system's."""

    configs: Mapping[str, str]
    trusted: str | None = None


def client_of(broker: BrokerConfig) -> ConsoleClient:
    """How a console connects to the first listener of a broker; ends the command if it cannot."""
    endpoint = broker.endpoints[0]
    lookup = broker.for_listener(endpoint.name)
    if endpoint.protocol == "PLAINTEXT":
        return ConsoleClient({})
    configs = {"security.protocol": endpoint.protocol}
    if endpoint.protocol.startswith("SASL_"):
        from penstock.security.mechanisms import password_mechanisms

        known = password_mechanisms()
        enabled = [m.strip() for m in (lookup("sasl.enabled.mechanisms") or "").split(",")]
        mechanism = next((m for m in known if m in enabled), None)
        if mechanism is None:
            misused(f"--console needs {', '.join(known[:-1])} or {known[-1]} on the listener {endpoint.name}")
        configs["sasl.mechanism"] = mechanism
    elif lookup("ssl.client.auth") == "required":
        misused(
            f"--console has no client certificate for {endpoint.name}: run `penstock console` with "
            f"--command-config, or use SASL_SSL"
        )
    if not endpoint.protocol.endswith("SSL"):
        return ConsoleClient(configs)
    return ConsoleClient(configs, _trusted(lookup))


def history_of(broker: BrokerConfig) -> Path | None:
    """The folder of a console's history in the first data directory; None for a broker without one.

    Why none with encryption at rest: the console does not have the keys, and names of groups are data.
    """
    encrypts = (
        broker["penstock.encryption.keys"] or broker["penstock.encryption.key.provider"] != FILE_PROVIDER
    )
    if broker.penstock_memory or encrypts or not broker.data_dirs:
        return None
    return Path(broker.data_dirs[0]).absolute() / _HISTORY


def _trusted(lookup: Callable[[str], str | None]) -> str | None:
    """The certificates of the truststore, or else those of the broker's own chain; never a key."""
    for store in ("truststore.certificates", "keystore.certificate.chain"):
        location = f"ssl.{store.partition('.')[0]}.location"
        text = lookup(f"ssl.{store}")
        if text is None and (path := lookup(location)):
            text = Path(path).read_text(encoding="utf-8")
        if found := _CERTIFICATE.findall(text or ""):
            return "\n".join(found)
    return None


class ConsoleChild:
    """Starts the console when the broker is ready: `with ConsoleChild(port, client) as child`.

    The child ends when its standard input is closed, so it also ends with a broker that is killed.
    """

    def __init__(self, port: int, client: ConsoleClient, history: Path | None = None) -> None:
        """`history` is the folder that keeps the lag of groups; None keeps it in memory."""
        self._port = port
        self._history = history
        self._client = client
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, bootstrap: str) -> None:
        options = [] if not self._client.configs else ["--command-config", str(self._write_configs())]
        command = [sys.executable, "-P", "-m", "penstock", *options, "console", "--bootstrap", bootstrap]
        command += ["--port", str(self._port), "--beside-broker"]
        if self._history is not None:
            command += ["--history", str(self._history)]
        # Ctrl-C goes to the whole process group; the broker decides when the console ends.
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)

    def _write_configs(self) -> Path:
        """A file of client configs in a folder that only its owner can read."""
        self._folder = Path(tempfile.mkdtemp(prefix="penstock-console-"))
        configs = dict(self._client.configs)
        if self._client.trusted is not None:
            trusted = self._folder / "trusted.pem"
            trusted.write_text(self._client.trusted + "\n", encoding="utf-8")
            configs |= {"ssl.truststore.location": str(trusted), "ssl.truststore.type": "PEM"}
        file = self._folder / "client.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in configs.items()), encoding="utf-8")
        return file

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process = self._process
        if process is not None:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def end_with_stdin() -> None:
    """Send SIGTERM to this process when its standard input is closed."""

    def watch() -> None:
        while os.read(0, 1024):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()
