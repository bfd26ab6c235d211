"""The brokers of a cluster on this machine: a directory with a folder for each.

    DIR/broker-1/broker.yaml   its whole config, read at each start; users may edit it
                 broker.log    its log; broker.log.1 is an older one
                 broker.pid    its process, while it should run
                 data/         its data
    DIR/broker-2/...

The folders hold all state: every command finds the cluster through DIR.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.cli.client_config import use_by_default
from penstock.cli.cluster.processes import (
    THIS_PROGRAM,
    Process,
    Program,
    is_alive,
    read_pid_file,
    send_signal,
    spawn,
    uninterrupted,
    wait_for_end,
    write_pid_file,
)
from penstock.cli.config_sources import read_config_file
from penstock.cli.failure import Failure
from penstock.cli.private_files import is_open_to_others, write_private

if TYPE_CHECKING:
    from penstock.model.config import DeclaredTopic

__all__ = ["BrokerHome", "bootstrap_of", "home_of", "homes_in"]

_FOLDER: Final = re.compile(r"broker-([0-9]+)")
#: with less space than this a broker cannot even log the reason for its end
_LITTLE_BYTES: Final = 1 << 20
_CLEANUP_S: Final = 10.0
_HEADER: Final = "# Written by `penstock`, read at each start of the broker.\n"


class BrokerHome:
    """A broker's folder, and the process that runs on it."""

    def __init__(self, directory: Path, id_: int) -> None:
        self.id = id_
        self.path = directory / f"broker-{id_}"
        self.config_file = self.path / "broker.yaml"
        self.log_file = self.path / "broker.log"
        self.pid_file = self.path / "broker.pid"
        self.data = self.path / "data"

    @cached_property
    def configs(self) -> dict[str, str]:
        """The configs in the config file, by Kafka's names."""
        return read_config_file(self.config_file).configs

    @cached_property
    def topics(self) -> tuple[DeclaredTopic, ...]:
        return read_config_file(self.config_file).topics

    def write(self, configs: Mapping[str, str], topics: Iterable[DeclaredTopic]) -> None:
        """Create the folder with its config file, unless it has the same content already.

        Why: `penstock up --cores` writes the file at each start, and must start on a full disk.
        """
        import yaml

        content: dict[str, Any] = dict(configs)
        declared = {topic.name: _settings(topic) for topic in topics}
        if declared:
            content["topics"] = declared
        text = _HEADER + yaml.safe_dump(content, sort_keys=False)
        if self._has(text):
            return
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            # The configs may have secrets.
            write_private(self.config_file, text)
        except OSError as error:
            remedy = "fix that first" if self.data.exists() else "choose another --data"
            raise Failure(f"cannot create {self.path}: {error.strerror}: {remedy}") from error

    def _has(self, text: str) -> bool:
        """Whether the config file has this text, and is private."""
        try:
            same = self.config_file.read_text(encoding="utf-8") == text
        except (OSError, ValueError):
            return False
        return same and not is_open_to_others(self.config_file)

    @property
    def address(self) -> str:
        """The broker's address for clients."""
        return self._listener(0)

    @property
    def client_listener(self) -> str:
        """The name of the listener for clients."""
        return self.configs["listeners"].partition("://")[0]

    @property
    def internal_address(self) -> str:
        """The broker's address for other brokers."""
        return self._listener(1)

    @property
    def votes(self) -> bool:
        """Whether it may be a voter of the metadata quorum; also true if the config file cannot be read."""
        try:
            roles = self.configs.get("process.roles", "broker,controller")
        except Failure:
            return True
        return "controller" in roles.split(",")

    def process(self) -> Process | None:
        """The running process, if there is one."""
        process = read_pid_file(self.pid_file)
        return process if process is not None and is_alive(process) else None

    def alter(self, configs: Mapping[str, str]) -> str:
        """Add configs to the config file, or replace them; returns the file's text before."""
        before = self.config_file.read_text(encoding="utf-8")
        self.write({**self.configs, **configs}, self.topics)
        self.__dict__.pop("configs", None)
        return before

    def restore(self, text: str) -> None:
        """Write the config file as it was."""
        write_private(self.config_file, text)
        self.__dict__.pop("configs", None)

    def start(self, program: Program = THIS_PROGRAM) -> int:
        """Start the process; returns the descriptor of its standard output, which gets the `ready` line."""
        self._refuse_other_data()
        with uninterrupted():
            try:
                options = ["--config", str(self.config_file)]
                if program.takes_log_file:
                    options += ["--log-file", str(self.log_file)]
                process, output = spawn(["up", *options], self.log_file, program.interpreter)
                self._record(process, output)
            except OSError as error:
                raise Failure(
                    f"broker {self.id} cannot be started in {self.path}: {error.strerror}: fix that first"
                ) from error
        return output

    def _record(self, process: Process, output: int) -> None:
        """Write the pid file, or end the process: without the file no command could find it."""
        try:
            write_pid_file(self.pid_file, process)
        except OSError:
            os.close(output)
            send_signal(process, signal.SIGKILL)
            wait_for_end([process], _CLEANUP_S)
            self.pid_file.unlink(missing_ok=True)
            raise

    def _refuse_other_data(self) -> None:
        """Refuse a folder that was moved or copied.

        Its config has the old path, so it would use other data.
        """
        named = self.configs.get("log.dirs", self.configs.get("log.dir", ""))
        directories = [os.path.realpath(path.strip()) for path in named.split(",")]
        if self.data.is_dir() and os.path.realpath(self.data) not in directories:
            raise Failure(
                f"{self.data} would not be used, because log.dirs is {named or 'not set'} in "
                f"{self.config_file}: "
                f"correct it there, or move the data out of the way"
            )

    def signal(self, number: signal.Signals) -> Process | None:
        """Signal the process; None, without a remaining pid file, if none runs."""
        process = read_pid_file(self.pid_file)
        if process is None or not send_signal(process, number):
            self.pid_file.unlink(missing_ok=True)
            return None
        return process

    def await_end(self, process: Process, timeout_s: float) -> None:
        if wait_for_end([process], timeout_s):
            raise Failure(
                f"broker {self.id} (process {process.pid}) has not stopped within {timeout_s:g} s: see "
                f"{self.log_file}, give it a longer --timeout, or `penstock broker kill {self.id}`"
            )
        self.pid_file.unlink(missing_ok=True)

    def last_words(self) -> str:
        """The last line of the log."""
        try:
            lines = self.log_file.read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            lines = []
        if lines:
            return lines[-1].removeprefix("penstock: ")
        is_full = shutil.disk_usage(self.path).free < _LITTLE_BYTES
        return "its disk is full: free space, or choose another --data" if is_full else "it logged nothing"

    def _listener(self, index: int) -> str:
        """The address that a listener advertises; that of its relay if the cluster has relays."""
        listeners = self.configs.get("advertised.listeners") or self.configs["listeners"]
        return listeners.split(",")[index].partition("://")[2]


def homes_in(directory: Path) -> list[BrokerHome]:
    """The brokers of a cluster, by id."""
    if not directory.is_dir():
        return []
    use_by_default(directory / "security" / "admin.properties")
    matches = (_FOLDER.fullmatch(path.name) for path in directory.iterdir())
    homes = (BrokerHome(directory, int(match[1])) for match in matches if match is not None)
    return sorted((home for home in homes if home.config_file.is_file()), key=lambda home: home.id)


def home_of(directory: Path, id_: int) -> BrokerHome:
    """The folder of one broker; a Failure if there is none."""
    homes = homes_in(directory)
    for home in homes:
        if home.id == id_:
            return home
    if not homes:
        raise Failure(f"{directory} has no cluster: name its directory with --data")
    known = ", ".join(str(home.id) for home in homes)
    raise Failure(f"{directory} has no broker {id_}: it has {known}")


def bootstrap_of(data: Path | None, bootstrap: str) -> str:
    """The bootstrap addresses: those of a directory's brokers, running ones first, or the given ones."""
    if data is None:
        return bootstrap
    homes = homes_in(data)
    if not homes:
        raise Failure(f"{data} has no cluster: name its directory with --data")
    running = [home for home in homes if home.process() is not None]
    if not running:
        raise Failure(f"no broker in {data} is running: `penstock cluster start --data {data}` starts them")
    return ",".join(home.address for home in running)


def _settings(topic: DeclaredTopic) -> dict[str, Any]:
    numbers = {"partitions": topic.partitions, "replication_factor": topic.replication_factor}
    return {**{name: number for name, number in numbers.items() if number != -1}, **topic.configs}
