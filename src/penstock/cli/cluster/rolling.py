"""`penstock cluster roll`: composes a roll from its options, and keeps its progress in a file."""

from __future__ import annotations

import asyncio
import hashlib
import shlex
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from penstock.cli.client_config import client_security
from penstock.cli.cluster.broker_home import homes_in
from penstock.cli.cluster.restarts import Change, LocalRestarts, changed_configs, interpreter_in, program_in
from penstock.cli.failure import Failure, misused
from penstock.model.addresses import parse_address
from penstock.net.cluster_client import ClusterClient
from penstock.rolling.driver import Roll, RollStopped
from penstock.rolling.observing import RolledCluster
from penstock.rolling.progress import Progress, decoded, encoded

__all__ = ["RollOptions", "roll"]

_PROGRESS: Final = "roll.json"
_ANSWER_S: Final = 10.0
#: in the command of --with
_BROKER: Final = "{broker}"


class RollOptions(NamedTuple):
    """The options of the command, None if omitted."""

    data: Path
    bootstrap: str
    upgrade_to: Path | None = None
    config: Path | None = None
    #: restarts a broker that is not of this machine
    command: str | None = None
    progress: Path | None = None
    allow_outages: bool = False
    timeout_s: float = 600.0


class _Task(NamedTuple):
    """What is rolled, and how."""

    bootstrap: str
    #: in words; the same words continue the same roll
    change: str
    restart: Callable[[int], Awaitable[None]]
    progress: Path | None
    awaits_process: bool


def roll(options: RollOptions, say: Callable[[str], None]) -> Progress:
    """Restart all brokers, one at a time; returns what was done. A Failure says why it stopped."""
    task = _external(options) if options.command is not None else _local(options)
    progress = _progress_so_far(task, say)
    try:
        progress = asyncio.run(_run(task, progress, options, say))
    except RollStopped as stopped:
        again = "" if task.progress is None else "; the same command continues when that is remedied"
        raise Failure(f"{stopped}{again}") from stopped
    if task.progress is not None:
        task.progress.unlink(missing_ok=True)
    return progress


def _local(options: RollOptions) -> _Task:
    """A roll of the cluster in a directory of this machine."""
    homes = homes_in(options.data)
    if not homes:
        raise Failure(f"{options.data} has no cluster: name its directory with --data")
    if (options.data / "machine.yaml").exists():
        misused(
            f"the brokers in {options.data} belong to `penstock up --cores`, which starts them: restart that "
            f"process, machine after machine"
        )
    interpreter = None if options.upgrade_to is None else interpreter_in(options.upgrade_to)
    configs = None if options.config is None else changed_configs(options.config, homes)
    words = "restart"
    if interpreter is not None:
        words = f"upgrade to {interpreter}"
    if options.config is not None:
        words += f", configs {hashlib.sha256(options.config.read_bytes()).hexdigest()}"
    program = None if interpreter is None else program_in(interpreter)
    restarts = LocalRestarts(homes, Change(program, configs), options.timeout_s)
    bootstrap = ",".join(home.address for home in homes)
    return _Task(bootstrap, words, restarts, options.progress or options.data / _PROGRESS, True)


def _external(options: RollOptions) -> _Task:
    """A roll of any cluster, by a command for each broker."""
    command = options.command or ""
    if _BROKER not in command:
        misused(f"--with {command!r} does not contain {_BROKER}, which stands for the id of a broker")
    if options.upgrade_to is not None or options.config is not None:
        misused("--with restarts brokers by a command of yours: leave --upgrade-to and --config out")

    async def restart(broker: int) -> None:
        await _carry_out([word.replace(_BROKER, str(broker)) for word in shlex.split(command)])

    return _Task(options.bootstrap, f"with {command}", restart, options.progress, False)


async def _carry_out(words: Sequence[str]) -> None:
    """Run a command to its end; RollStopped if it fails."""
    pipe = asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(
            *words, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=asyncio.subprocess.STDOUT
        )
    except OSError as error:
        raise RollStopped(f"{words[0]} cannot be run: {error.strerror}") from error
    output, _ = await process.communicate()
    if process.returncode:
        last = output.decode(errors="replace").strip().rpartition("\n")[2] or "it printed nothing"
        raise RollStopped(f"`{shlex.join(words)}` failed with exit code {process.returncode}: {last}")


def _progress_so_far(task: _Task, say: Callable[[str], None]) -> Progress:
    """The progress of the same roll, if one has stopped; else a new one."""
    if task.progress is not None and task.progress.exists():
        known = decoded(task.progress.read_text(encoding="utf-8"))
        if known is not None and known.change == task.change:
            done = ", ".join(map(str, known.done)) or "none"
            say(f"continuing the roll that stopped; done: {done}")
            return known
        say("another roll has stopped; this one begins with all brokers")
    return Progress(task.change)


async def _run(task: _Task, progress: Progress, options: RollOptions, say: Callable[[str], None]) -> Progress:
    try:
        addresses = [parse_address(address.strip()) for address in task.bootstrap.split(",")]
    except ValueError as error:
        misused(f"{error}: correct --bootstrap")
    client = ClusterClient(addresses, "penstock-roll", client_security())

    def save(now: Progress) -> None:
        if task.progress is not None:
            task.progress.write_text(encoded(now), encoding="utf-8")

    try:
        return await Roll(
            RolledCluster(client, _ANSWER_S),
            task.restart,
            timeout_s=options.timeout_s,
            say=say,
            save=save,
            allow_outages=options.allow_outages,
            awaits_process=task.awaits_process,
        ).run(progress)
    finally:
        client.close()
        await asyncio.sleep(0)  # their transports end with the next turn of the loop
