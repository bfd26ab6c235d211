"""`penstock up --cores`: composes the layout, the supervisor and the monitoring port of a machine."""

from __future__ import annotations

import asyncio
import gc
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.broker.base.logs import get_logger
from penstock.cli.config_sources import resolved_configs
from penstock.cli.failure import misused
from penstock.cli.machine.endpoint import Endpoint
from penstock.cli.machine.layout import Machine, available_cores, lay_out
from penstock.cli.machine.supervisor import Supervisor
from penstock.model.config import BrokerConfig
from penstock.model.config.monitoring_keys import MetricsAddress, metrics_address, metrics_token

__all__ = ["cores_of", "run_machine"]

log = get_logger("supervisor")


def cores_of(text: str) -> int:
    """The number of `--cores`; `auto` is all cores that this process may use."""
    if text == "auto":
        return available_cores()
    if not text.isdigit() or int(text) < 1:
        misused(f"--cores {text!r} is neither a number from 1 nor auto")
    return int(text)


def run_machine(
    configs: Mapping[str, str], cores: int, topics: Sequence[Any], ready: Callable[[str], None]
) -> None:
    """Run the brokers of this machine until SIGTERM or SIGINT; calls `ready` with the common address."""
    plain = resolved_configs(configs)
    listener = plain.get("penstock.metrics.listener", "auto")
    try:
        address = metrics_address(listener)
    except ValueError:
        misused(f"penstock.metrics.listener {listener!r} is not auto, HOST:PORT or HOST:+OFFSET")
    if address is not None and address.tls:
        misused("with --cores, penstock.metrics.listener has no TLS: use a port on loopback")
    machine = lay_out(configs, cores, topics)
    is_secured = BrokerConfig(resolved_configs(machine.homes[0].configs)).is_secured
    token = metrics_token(plain.get("penstock.metrics.token"), is_secured, lambda: secrets.token_hex(16))
    gc.enable()
    asyncio.run(_run(machine, address, token, ready))


async def _run(
    machine: Machine, address: MetricsAddress | None, token: str | None, ready: Callable[[str], None]
) -> None:
    # Brokers serve their metrics to the supervisor alone.
    own_token = secrets.token_hex(16)
    supervisor = Supervisor(machine, {"PENSTOCK_METRICS_TOKEN": own_token})
    endpoint = Endpoint(
        machine.name,
        lambda: supervisor.brokers,
        lambda: supervisor.unready,
        lambda: {id_: child.metrics_port for id_, child in supervisor.children.items()},
        lambda: supervisor.restarts,
        token=token,
        own_token=own_token,
    )
    if address is not None:
        where = await endpoint.start(address, int(machine.address.rpartition(":")[2]))
        log.info("monitoring_started", address=where)
    try:
        await supervisor.run(ready)
    finally:
        await endpoint.stop()
