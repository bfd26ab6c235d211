"""`penstock up`: one broker, or one per core, in the foreground."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

import typer

from penstock.cli.archives import StoreConfig
from penstock.cli.config_sources import effective, resolved_configs
from penstock.cli.failure import Failure, misused, print_no_more
from penstock.cli.help_text import examples
from penstock.cli.private_files import is_open_to_others, secret_files, secret_names

if TYPE_CHECKING:
    from penstock.model.config import BrokerConfig, ConfigFile

_STANDARD_ERROR: Final = 2
#: how long the `ready` line waits for the log, whose reader may stall
_LOGGED_S: Final = 0.2


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


@examples(
    "penstock up                                  # 127.0.0.1:9092, data in ./penstock-data",
    "penstock up --port 0 --memory                # any free port, nothing on disk",
    "penstock up --config broker.yaml --set num.partitions=3 --console",
    "penstock up --mount ./archive@2026-11-17T12:00",
)
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
    mount: Annotated[
        str | None,
        typer.Option(
            "--mount",
            metavar="ARCHIVE@TIME",
            help="Serve a backup read-only, without a restore: a folder, or a URL like s3://bucket/prefix.",
        ),
    ] = None,
    store_config: StoreConfig = None,
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
    if mount is not None and (memory or data or cores):
        misused("--mount excludes --data, --memory and --cores: its broker keeps no data of its own")
    if console:
        from penstock.cli.requirements import require_console

        require_console()
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
    if mount is not None:
        from penstock.cli.mounts import flags_of

        flags |= flags_of(mount, store_config)
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
    coloured = log_file is None and logs.has_colours(sys.stderr)
    logs.configure_queued(broker.penstock_log_level, log_format, _log_writer(log_file), coloured=coloured)
    _warn_of_settings(broker, file, config_file, secret_files(configs))
    try:
        with _console_beside(broker, console_port) as started:
            if broker.penstock_mount is not None:
                from penstock.cli.mounts import serve_mount

                serve_mount(broker, started)
            elif cores is None:
                run(broker, ready=started, topics=file.topics)
            else:
                _run_machine(broker, configs, file, cores, started)
    except DirectoryRefused as error:
        raise Failure(f"{error} (--data chooses another directory)") from error
    except OSError as error:
        from penstock.cli.cluster.listening import cannot_listen

        where = ", ".join(f"{e.host or '*'}:{e.port}" for e in broker.endpoints)
        raise cannot_listen(error, where) from error
    finally:
        # Before a failure is printed, which goes to standard error, too.
        logs.end()


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
    from penstock.cli.console_child import ConsoleChild, client_of, history_of

    with ConsoleChild(port, client_of(broker), history_of(broker)) as child:

        def ready(address: str) -> None:
            _say_ready(address)
            child.start(address)

        yield ready


def _warn_of_settings(
    broker: BrokerConfig, file: ConfigFile, config_file: Path | None, secrets: list[str]
) -> None:
    """Warn of listeners, files and settings that the user may want otherwise."""
    from penstock.broker.base import logs

    log = logs.get_logger("config")
    for address in broker.insecure_listeners():
        reason = "any machine that reaches it can read, change and delete all data"
        log.warning("listener_insecure", address=address, reason=reason)
    for address, reason in broker.weak_listeners().items():
        log.warning("listener_insecure", address=address, reason=reason)
    _warn_of_readable_files(broker, file, config_file, secrets)
    for name, reason in file.refused.items():
        log.warning("setting_refused", name=name, reason=reason)
    for name, reason in file.ignored.items():
        log.warning("setting_without_effect", name=name, reason=reason)


def _warn_of_readable_files(
    broker: BrokerConfig, file: ConfigFile, config_file: Path | None, secrets: list[str]
) -> None:
    """Warn of files that other users of this machine can read, although they have secrets.

    With `penstock.security.strict` they keep the broker from starting.
    """
    from penstock.broker.base import logs
    from penstock.broker.base.secret_files import exposure_of

    log, strict = logs.get_logger("config"), bool(broker["penstock.security.strict"])
    names = secret_names(file.configs)
    if config_file is not None and names and is_open_to_others(config_file):
        reason = "other users of this machine can read its secrets: chmod 600, or use ${file:...}"
        if strict:
            misused(f"{config_file}: {reason} (penstock.security.strict)")
        log.warning("config_file_readable", path=str(config_file), secrets=",".join(names), reason=reason)
    for path in secrets:
        exposure = exposure_of(path)
        if exposure is not None and strict:
            misused(f"{path}: {exposure} (penstock.security.strict)")
        if exposure is not None:
            log.warning("secret_file_readable", path=path, reason=exposure)
    if not broker.is_secured:
        return
    for directory in broker.data_dirs:
        if is_open_to_others(Path(directory)):
            reason = "other users of this machine can read the records: chmod 700"
            log.warning("data_directory_readable", path=directory, reason=reason)


def _log_writer(log_file: Path | None) -> Callable[[bytes], None]:
    """Writes lines to the log file, or to standard error."""
    if log_file is not None:
        from penstock.cli.log_file import RotatingFile

        return RotatingFile(log_file, _STANDARD_ERROR).write
    from penstock.broker.base.descriptor_writes import write_all

    return partial(write_all, _STANDARD_ERROR)


def _log_format(wanted: str) -> str:
    if wanted != LogFormat.AUTO:
        return wanted
    return LogFormat.HUMAN if sys.stderr.isatty() else LogFormat.TEXT


def _say_ready(address: str) -> None:
    """Print the `ready` line without waiting for its reader: this is the event loop's thread."""
    from penstock.broker.base import logs
    from penstock.broker.base.descriptor_writes import accepts_at_once, write_all

    # A program that waits for the line may kill the broker at once: by then the log has its start.
    logs.flush(_LOGGED_S)

    try:
        output = sys.stdout.fileno()
    except (OSError, ValueError):  # standard output is closed, or in memory
        output = -1
    if output >= 0 and not accepts_at_once(output):
        line = f"ready {address}\n".encode()
        threading.Thread(target=_write_late, args=(write_all, output, line), daemon=True).start()
        return
    try:
        print(f"ready {address}", flush=True)
    except BrokenPipeError:
        print_no_more()


def _write_late(write: Callable[[int, bytes], None], output: int, line: bytes) -> None:
    """Wait for the reader of a full pipe, who may be gone: a voter is ready only when a majority runs."""
    with suppress(BrokenPipeError):
        write(output, line)
