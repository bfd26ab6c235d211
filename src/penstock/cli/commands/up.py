"""`penstock up`: one broker, or one per core, in the foreground."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO, cast

import typer

from penstock.cli.config_sources import effective, resolved_configs
from penstock.cli.failure import Failure, misused, print_no_more
from penstock.cli.private_files import is_open_to_others, secret_names

if TYPE_CHECKING:
    from penstock.model.config import BrokerConfig, ConfigFile


class LogFormat(StrEnum):
    AUTO = "auto"
    HUMAN = "human"
    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def up(
    id_: Annotated[
        int | None, typer.Option("--id", min=0, help="Id of this broker in its cluster. [default: 1]")
    ] = None,
    host: Annotated[
        str | None, typer.Option("--host", help="Address to listen on. [default: 127.0.0.1]")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port", "-p", min=0, max=65535, help="Port to listen on; 0 for any free port. [default: 9092]"
        ),
    ] = None,
    data: Annotated[
        list[Path] | None,
        typer.Option("--data", "-d", help="Data directory; repeatable. [default: penstock-data]"),
    ] = None,
    memory: Annotated[bool, typer.Option("--memory", help="Keep all data in memory.")] = False,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            "-c",
            envvar="PENSTOCK_CONFIG",
            help="Config file: YAML, or Kafka's .properties.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", "-s", metavar="KEY=VALUE", help="A broker config; repeatable; overrides the file."
        ),
    ] = None,
    cores: Annotated[
        str | None,
        typer.Option(
            "--cores",
            metavar="N|auto",
            help="Run N brokers as one machine, with a common port; auto: one per core. --id is then the "
            "number of the machine.",
        ),
    ] = None,
    allow_insecure: Annotated[
        bool,
        typer.Option(
            "--allow-insecure",
            help="Serve other machines without TLS and authentication. Data is open to all.",
        ),
    ] = False,
    console: Annotated[
        bool, typer.Option("--console", help="Also serve the web console of this cluster.")
    ] = False,
    console_port: Annotated[
        int,
        typer.Option("--console-port", min=0, max=65535, help="Port of the console; 0 for any free port."),
    ] = 8088,
    log_format: Annotated[
        LogFormat | None,
        typer.Option(
            "--log-format", help="Format of log events. [default: auto: human on a terminal, else text]"
        ),
    ] = None,
    log_level: Annotated[
        LogLevel | None, typer.Option("--log-level", help="Lowest level of log events.")
    ] = None,
    log_file: Annotated[
        Path | None,
        typer.Option("--log-file", hidden=True, help="The file that standard error is: renamed when large."),
    ] = None,
    supervised: Annotated[bool, typer.Option("--supervised", hidden=True)] = False,
) -> None:
    """Run a broker until SIGTERM or Ctrl-C. Prints `ready HOST:PORT` when it accepts connections."""
    # Longer than other functions because its parameters are the options of the command.
    if memory and data:
        misused("--memory and --data exclude each other: give one of them")
    if console:
        from penstock.cli.requirements import require_extra

        for module in ("starlette", "uvicorn"):
            require_extra(module, "console")
    flags = {
        "node.id": None if id_ is None else str(id_),
        "broker.host": host,
        "broker.port": None if port is None else str(port),
        "log.dirs": ",".join(str(path.absolute()) for path in data) if data else None,
        "penstock.memory": "true" if memory else None,
        "penstock.insecure.listeners.allow": "true" if allow_insecure else None,
        "penstock.log.format": log_format.value if log_format else None,
        "penstock.log.level": log_level.value if log_level else None,
    }
    file, configs = effective(
        config, {name: value for name, value in flags.items() if value is not None}, settings or ()
    )
    if supervised:
        from penstock.cli.console_child import end_with_stdin

        end_with_stdin()
    _run(configs, file, config, console_port if console else None, cores, log_file)


def _run(
    configs: dict[str, str],
    file: ConfigFile,
    config_file: Path | None,
    console_port: int | None,
    cores: str | None,
    log_file: Path | None,
) -> None:
    # structlog would import rich for coloured tracebacks, which a broker never prints: 50 ms and 5 MB.
    sys.modules.setdefault("rich", cast(Any, None))
    # Nothing that is imported is garbage, and looking for it is a tenth of the start; `run` enables it again.
    gc.disable()

    from penstock.broker.app.server import run
    from penstock.broker.base import logs
    from penstock.model.config import BrokerConfig
    from penstock.storage.directory import DirectoryRefused

    broker = BrokerConfig(resolved_configs(configs))
    insecure = broker.insecure_listeners()
    if insecure and not broker.penstock_insecure_listeners_allow:
        misused(
            f"{', '.join(insecure)} would serve any machine, without encryption or authentication: "
            f"use TLS (docs/tls.md), bind loopback with --host 127.0.0.1, or accept the risk with "
            f"--allow-insecure"
        )
    log_format = cast(logs.LogFormat, _log_format(broker.penstock_log_format))
    logs.configure(broker.penstock_log_level, log_format, _log_stream(log_file))
    for address in insecure:
        reason = "any machine that reaches it can read, change and delete all data"
        logs.get_logger("config").warning("listener_insecure", address=address, reason=reason)
    for address, reason in broker.weak_listeners().items():
        logs.get_logger("config").warning("listener_insecure", address=address, reason=reason)
    _warn_of_readable_files(broker, file, config_file)
    for name, reason in file.refused.items():
        logs.get_logger("config").warning("setting_refused", name=name, reason=reason)
    try:
        with _console_beside(broker, console_port) as started:
            if cores is None:
                run(broker, ready=started, topics=file.topics)
            else:
                _run_machine(broker, configs, file, cores, started)
    except DirectoryRefused as error:
        raise Failure(f"{error} (--data chooses another directory)") from error
    except OSError as error:
        from penstock.cli.cluster.listening import cannot_listen

        where = ", ".join(f"{e.host or '*'}:{e.port}" for e in broker.endpoints)
        raise cannot_listen(error, where) from error


def _run_machine(
    broker: BrokerConfig, configs: dict[str, str], file: ConfigFile, cores: str, ready: Callable[[str], None]
) -> None:
    """Run a broker per core; their log goes to a pipe, so that the format is chosen here."""
    from penstock.cli.machine.running import cores_of, run_machine

    log_format = str(_log_format(broker.penstock_log_format))
    run_machine(configs | {"penstock.log.format": log_format}, cores_of(cores), file.topics, ready)


@contextmanager
def _console_beside(broker: BrokerConfig, port: int | None) -> Iterator[Callable[[str], None]]:
    """The callback of a ready broker: print its address, and start the console if there is a port."""
    if port is None:
        yield _say_ready
        return
    from penstock.cli.console_child import ConsoleChild, client_of

    with ConsoleChild(port, client_of(broker)) as child:

        def ready(address: str) -> None:
            _say_ready(address)
            child.start(address)

        yield ready


def _warn_of_readable_files(broker: BrokerConfig, file: ConfigFile, config_file: Path | None) -> None:
    """Warn of files that other users of this machine can read, although they have secrets."""
    from penstock.broker.base import logs

    log = logs.get_logger("config")
    names = secret_names(file.configs)
    if config_file is not None and names and is_open_to_others(config_file):
        reason = "other users of this machine can read its secrets: chmod 600, or use ${file:...}"
        log.warning("config_file_readable", path=str(config_file), secrets=",".join(names), reason=reason)
    if not broker.is_secured:
        return
    for directory in broker.data_dirs:
        if is_open_to_others(Path(directory)):
            reason = "other users of this machine can read the records: chmod 700"
            log.warning("data_directory_readable", path=directory, reason=reason)


def _log_stream(log_file: Path | None) -> TextIO | None:
    """The stream of the log; None for standard error."""
    if log_file is None:
        return None
    from penstock.cli.log_file import rotating

    return rotating(log_file)


def _log_format(wanted: str) -> str:
    if wanted != LogFormat.AUTO:
        return wanted
    return LogFormat.HUMAN if sys.stderr.isatty() else LogFormat.TEXT


def _say_ready(address: str) -> None:
    """Print the `ready` line. The reader may be gone: a voter is ready only when a majority runs."""
    try:
        print(f"ready {address}", flush=True)
    except BrokenPipeError:
        print_no_more()
