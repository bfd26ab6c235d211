"""`penstock container up|probe|pre-stop|unregister|external-metrics`: brokers in containers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Final

import typer

from penstock.cli.help_text import examples
from penstock.cli.options import DEFAULT_BOOTSTRAP, DEFAULT_TIMEOUT, Bootstrap, Patience, Timeout

app = typer.Typer(help="Run brokers in containers, and in pods of Kubernetes.", no_args_is_help=True)

_PROBED: Final = "http://127.0.0.1:29092/healthz"
_ZONE_S: Final = 60.0
PodName = Annotated[
    str, typer.Option("--pod", envvar="POD_NAME", help="Name of the pod, which ends with its ordinal.")
]
Voters = Annotated[
    int, typer.Option("--voters", min=1, max=5, help="Pods with a lower ordinal vote in the quorum.")
]
Namespace = Annotated[str, typer.Option("--namespace", envvar="POD_NAMESPACE", help="Namespace of the pods.")]
SetName = Annotated[str, typer.Option("--set-name", help="Name of the StatefulSet.")]


@app.command()
@examples("penstock container up --pod queue-0 --domain queue-brokers.prod.svc.cluster.local --voters 3")
def up(
    pod: PodName,
    domain: Annotated[str, typer.Option("--domain", help="DNS name of the headless service.")],
    voters: Voters,
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", envvar="PENSTOCK_CONFIG", help="Config file of all brokers."),
    ] = None,
    advertise: Annotated[
        list[str] | None,
        typer.Option(
            "--advertise",
            metavar="NAME://HOST:PORT",
            help="Address of a listener, with {pod}, {id}, {domain}, {host_ip} or {30000+id} in it; "
            "repeatable.",
        ),
    ] = None,
    internal_port: Annotated[
        int, typer.Option("--internal-port", min=1, max=65535, help="Port of the voters' internal listener.")
    ] = 19092,
    node: Annotated[
        str,
        typer.Option("--rack-of-node", envvar="NODE_NAME", help="Node whose zone is the rack of the broker."),
    ] = "",
    rack: Annotated[str | None, typer.Option("--rack", help="The rack, instead of a zone.")] = None,
    host_ip: Annotated[str, typer.Option("--host-ip", envvar="HOST_IP", help="Address of the node.")] = "",
    settings: Annotated[
        list[str] | None, typer.Option("--set", "-s", metavar="KEY=VALUE", help="A config; repeatable.")
    ] = None,
) -> None:
    """Run the broker of a pod of a StatefulSet: its id, votes, addresses and rack follow from the pod.

    The memory for requests follows from the memory limit of the container, unless it is configured.
    """
    from penstock.cli.commands.up import up as run
    from penstock.cli.config_sources import effective
    from penstock.cli.container.identity import Pod, broker_settings, memory_settings
    from penstock.cli.container.zone import zone_of
    from penstock.cli.machine.cgroup import memory_limit

    _, given = effective(config, {}, settings or ())
    directories = given.get("log.dirs", given.get("log.dir", ""))
    memory = Path(directories.split(",")[0]).parent if directories else None
    if rack is None and node:
        rack = zone_of(node, memory, _ZONE_S)
    place = Pod(name=pod, domain=domain, voters=voters, internal_port=internal_port, host_ip=host_ip)
    found = {**broker_settings(place, advertise or (), rack), **memory_settings(memory_limit(), given)}
    run(config=config, settings=[*(f"{name}={value}" for name, value in found.items()), *(settings or ())])


@app.command()
@examples("penstock container probe --url http://127.0.0.1:9404/readyz")
def probe(
    url: Annotated[
        str, typer.Option("--url", metavar="URL", help="A path of the monitoring port.")
    ] = _PROBED,
    timeout: Timeout = 5.0,
) -> None:
    """Ask a broker for its health; the exit code is 0 if it answers with 200."""
    from penstock.cli.container.probing import probe as ask

    print(ask(url, timeout))


@app.command("pre-stop")
@examples("penstock container pre-stop --pod queue-3 --namespace prod --set-name queue --voters 3")
def pre_stop(
    pod: PodName,
    namespace: Namespace,
    set_name: SetName,
    voters: Voters,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Patience = 600.0,
) -> None:
    """Before the broker of a pod stops: wait until other replicas suffice, or give its replicas away.

    It gives them away if the StatefulSet has become smaller, and does nothing if the whole set ends.
    """
    from penstock.cli.container.identity import ordinal_of
    from penstock.cli.container.kubernetes import Unreachable
    from penstock.cli.container.stopping import Fate, StatefulSet, fate_of, give_away, wait_for_others
    from penstock.cli.direct import DirectLine
    from penstock.cli.failure import Failure

    broker = ordinal_of(pod)
    wanted = broker + 1
    try:
        wanted = StatefulSet(namespace, set_name).wanted()
        fate = fate_of(broker, wanted, voters)
    except Unreachable as error:
        # Nothing is given away on a guess; to wait for the others is right in any case.
        fate = Fate.RETURNS
        _say(str(error))
    _say(f"{pod} stops: {fate.value}")
    if fate is Fate.ENDS:
        return
    with DirectLine(bootstrap, DEFAULT_TIMEOUT) as line:
        if fate is Fate.LEAVES:
            moved = give_away(line, broker, max(wanted, voters), timeout)
            _say(f"{pod} has given {moved} partitions away")
        elif not wait_for_others(line, broker, timeout, _say):
            raise Failure(f"the other replicas have not caught up after {timeout:g} s; {pod} stops now")


@app.command()
@examples("penstock container unregister --namespace prod --set-name queue --voters 3")
def unregister(
    namespace: Namespace,
    set_name: SetName,
    voters: Voters,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Patience = 600.0,
) -> None:
    """Unregister the brokers of pods that a smaller StatefulSet no longer has."""
    from penstock.cli.container.leaving import unregister_leavers
    from penstock.cli.container.stopping import StatefulSet
    from penstock.cli.direct import DirectLine

    pods = StatefulSet(namespace, set_name)
    for text in unregister_leavers(lambda: DirectLine(bootstrap, DEFAULT_TIMEOUT), pods, voters, timeout):
        print(text, flush=True)


@app.command("external-metrics")
@examples(
    "penstock container external-metrics --namespace prod --set-name queue"
    " --domain queue-brokers.prod.svc.cluster.local --keystore server.pem --authority ca.pem"
    " --token-file token"
)
def external_metrics(
    namespace: Namespace,
    set_name: SetName,
    domain: Annotated[str, typer.Option("--domain", help="DNS name of the headless service.")],
    keystore: Annotated[Path, typer.Option("--keystore", help="PEM file with key and certificate.")],
    authority: Annotated[
        Path, typer.Option("--authority", help="PEM file that the brokers' certificates need.")
    ],
    token: Annotated[Path, typer.Option("--token-file", help="File with the token of the monitoring port.")],
    metrics_port: Annotated[int, typer.Option("--metrics-port", min=1, max=65535)] = 9404,
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Port to listen on.")] = 6443,
    interval: Annotated[float, typer.Option("--interval", min=1, metavar="SECONDS")] = 15.0,
) -> None:
    """Serve the load of brokers and the lag of groups to autoscalers, as Kubernetes' external metrics."""
    import threading

    from penstock.cli.container.kubernetes import KubernetesApi
    from penstock.cli.container.metrics_server import Brokers, LoadWatch, front_of, metrics_server
    from penstock.cli.container.stopping import StatefulSet

    api = KubernetesApi()
    pods = StatefulSet(namespace, set_name, api)
    host = f"{set_name}-{{id}}.{domain}"
    watch = LoadWatch(Brokers(pods.wanted, host, metrics_port, token, authority).pages, interval)
    server = metrics_server(port, keystore, front_of(api), namespace, watch)
    threading.Thread(target=watch.run, name="penstock-load", daemon=True).start()
    print(f"external metrics of {set_name} are served on port {port}", flush=True)
    server.serve_forever()


def _say(text: str) -> None:
    """Print to the log of the container, if this is a hook: the output of a hook is shown nowhere."""
    print(text, flush=True)
    if os.getpid() != 1:
        try:
            with open("/proc/1/fd/2", "w", encoding="utf-8") as log:
                print(text, file=log, flush=True)
        except OSError:
            return  # process 1 is of another user, so this is no hook of a container
