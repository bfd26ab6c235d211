"""RabbitMQ 4 from Debian's packages, in a folder of its own: the server runs there with `chroot`.

The machine's Debian may be older than RabbitMQ 4 and its Erlang. So the packages of a newer suite are
unpacked into the lab, with the C library that they need, and nothing is installed. That needs root.

Each server has an `epmd` (the registry of Erlang nodes) on a port of its own; a cluster shares one.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from lab.debian import private_apt
from lab.foreign import ForeignServer, greets
from lab.home import LabError, MissingTool, built, command, lab_root, require
from lab.server import HOST, free_ports

__all__ = ["SUITE", "rabbitmq", "rabbitmq_built", "rabbitmq_cluster", "rabbitmq_root", "rabbitmq_version"]

SUITE = "trixie"
#: RabbitMQ, Erlang, a shell, and their libraries
_NAMES = """
base-files dash coreutils debianutils hostname sed grep mawk procps util-linux libc6 libc-bin
libacl1 libattr1 libcap2 libgcc-s1 libgmp10 liblz4-1 liblzma5 libncursesw6 libncurses6 libpcre2-8-0 libproc2-0
libsctp1 libselinux1 libssl3t64 libstdc++6 libsystemd0 libtinfo6 libzstd1 zlib1g
erlang-asn1 erlang-base erlang-crypto erlang-eldap erlang-ftp erlang-inets erlang-mnesia erlang-os-mon
erlang-parsetools erlang-public-key erlang-runtime-tools erlang-snmp erlang-ssl erlang-syntax-tools
erlang-tftp erlang-tools erlang-xmerl rabbitmq-server
"""
PACKAGES = tuple(_NAMES.split())
COOKIE = "PENSTOCKLAB"
EPMD_S = 10.0
#: protocol header of AMQP 0-9-1; the response is a method frame on channel 0
AMQP_HELLO, AMQP_METHOD = b"AMQP\x00\x00\x09\x01", b"\x01\x00\x00"
_SERVER = "/usr/lib/rabbitmq/bin/rabbitmq-server"
#: the mounts are in a namespace of the process, and end with it; the process id stays the same to the end
_ENTER = """\
set -e
mount --rbind /proc "$1/proc"
mount --rbind /dev "$1/dev"
mount --bind "$2" "$1/data"
exec chroot "$1" "$3"
"""


def rabbitmq_root() -> Path:
    """The folder with the unpacked packages, made on first use; `LabError` if that cannot be."""
    require("apt-get", "dpkg-deb", "unshare", "chroot")
    if os.geteuid() != 0:
        raise MissingTool("RabbitMQ in the lab needs root, for chroot")
    return built(_folder(), (SUITE, *PACKAGES), _unpack)


def rabbitmq_built() -> bool:
    """Returns true if the packages are unpacked. Tests that must be quick skip otherwise."""
    return _folder().with_name("rabbitmq.stamp").is_file() and os.geteuid() == 0


def rabbitmq_version() -> str:
    """The version of the unpacked server, such as 4.0.5."""
    (home,) = (rabbitmq_root() / "usr/lib/rabbitmq/lib").glob("rabbitmq_server-*")
    return home.name.removeprefix("rabbitmq_server-")


def _folder() -> Path:
    return lab_root() / "rabbitmq"


def _unpack(folder: Path) -> None:
    print(f"unpacking RabbitMQ of Debian {SUITE} (once)", flush=True)
    home = folder.with_name("rabbitmq-apt")
    apt = private_apt(home, SUITE)
    command([*apt, "update"], home)
    debs = home / "debs"
    debs.mkdir(exist_ok=True)
    command([*apt, "download", *PACKAGES], debs)
    for name in ("bin", "sbin", "lib", "lib64"):
        (folder / "usr" / name).mkdir(parents=True)
        (folder / name).symlink_to(f"usr/{name}")
    for deb in sorted(debs.glob("*.deb")):
        command(["dpkg-deb", "-x", deb, folder], debs)
        deb.unlink()
    for name in ("proc", "dev", "data", "tmp", "etc"):
        (folder / name).mkdir(exist_ok=True)
    (folder / "etc/hosts").write_text(f"{HOST} localhost\n")
    (folder / "etc/passwd").write_text("root:x:0:0:root:/data:/bin/sh\n")
    if not (folder / "usr/bin/sh").exists():
        (folder / "usr/bin/sh").symlink_to("dash")
    if not (folder / "usr/bin/awk").exists():
        (folder / "usr/bin/awk").symlink_to("mawk")


@dataclass(slots=True)
class _Registry:
    """`epmd` on a port of its own. It ends when all nodes that use it were stopped."""

    port: int
    users: set[int] = field(default_factory=set)
    process: subprocess.Popen[bytes] | None = None

    def start(self, user: int) -> None:
        """Wait until it listens: a node that finds none would start one that outlives it."""
        self.users.add(user)
        if self.process is None:
            program = ["chroot", str(rabbitmq_root()), "/usr/bin/epmd", "-port", str(self.port)]
            self.process = subprocess.Popen(
                [*program, "-address", HOST],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        deadline = time.monotonic() + EPMD_S
        while time.monotonic() < deadline and self.process.poll() is None:
            with suppress(OSError):
                socket.create_connection((HOST, self.port), 1.0).close()
                return
            time.sleep(0.01)
        raise LabError(f"epmd does not listen on port {self.port}")

    def release(self, user: int) -> None:
        self.users.discard(user)
        if not self.users and self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


@dataclass(slots=True)
class _Rabbit(ForeignServer):
    """A node. The first node of a cluster starts the registry with itself."""

    registry: _Registry = field(default_factory=lambda: _Registry(0))

    def launch(self) -> None:
        self.registry.start(self.port)
        ForeignServer.launch(self)

    def stop(self) -> None:
        ForeignServer.stop(self)
        self.registry.release(self.port)


def rabbitmq(
    folder: Path, settings: Mapping[str, str] | None = None, plugins: Sequence[str] = ()
) -> ForeignServer:
    """One server, its data and log in `folder`; user guest, password guest.

    `settings` are lines of rabbitmq.conf, `plugins` such as `rabbitmq_stream`.
    """
    port, distribution, epmd = free_ports(3)
    registry = _Registry(epmd)
    return _node(folder, port, distribution, f"rabbit-{port}@localhost", registry, settings or {}, plugins)


def rabbitmq_cluster(
    folder: Path, count: int = 3, settings: Mapping[str, str] | None = None, plugins: Sequence[str] = ()
) -> list[ForeignServer]:
    """Nodes of one cluster, each in a folder of its own. Launch all of them (`lab.foreign.started`)."""
    ports = free_ports(2 * count + 1)
    registry = _Registry(ports.pop())
    clients, distributions = ports[:count], ports[count:]
    names = [f"rabbit-{port}@localhost" for port in clients]
    common = {
        **(settings or {}),
        "cluster_formation.peer_discovery_backend": "classic_config",
        **{f"cluster_formation.classic_config.nodes.{at}": name for at, name in enumerate(names, 1)},
    }
    nodes = []
    for port, distribution, name in zip(clients, distributions, names, strict=True):
        home = folder / f"rabbitmq-{port}"
        home.mkdir(parents=True, exist_ok=True)
        nodes.append(_node(home, port, distribution, name, registry, common, plugins))
    return nodes


def _node(
    folder: Path,
    port: int,
    distribution: int,
    name: str,
    registry: _Registry,
    settings: Mapping[str, str],
    plugins: Sequence[str],
) -> ForeignServer:
    root = rabbitmq_root()
    lines = {"listeners.tcp.1": f"{HOST}:{port}", "log.console": "true", "log.file": "false", **settings}
    (folder / "rabbitmq.conf").write_text("".join(f"{key} = {value}\n" for key, value in lines.items()))
    (folder / "enabled_plugins").write_text(f"[{','.join(plugins)}].\n")
    cookie = folder / ".erlang.cookie"
    if not cookie.exists():
        cookie.write_text(COOKIE)
        cookie.chmod(0o400)
    environment = {
        "HOME": "/data",
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "LANG": "C.UTF-8",
        "HOSTNAME": "localhost",
        "ERL_EPMD_PORT": str(registry.port),
        "ERL_EPMD_ADDRESS": HOST,
        "RABBITMQ_NODENAME": name,
        "RABBITMQ_DIST_PORT": str(distribution),
        "RABBITMQ_MNESIA_BASE": "/data/mnesia",
        "RABBITMQ_LOG_BASE": "/data/log",
        "RABBITMQ_LOGS": "-",
        "RABBITMQ_CONFIG_FILE": "/data/rabbitmq.conf",
        "RABBITMQ_ENABLED_PLUGINS_FILE": "/data/enabled_plugins",
        "RABBITMQ_PID_FILE": "/data/rabbitmq.pid",
        # Without it the start script stays, and a SIGKILL would end the script and not the server.
        "RABBITMQ_ALLOW_INPUT": "1",
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-noinput -kernel inet_dist_use_interface {127,0,0,1}",
    }
    program = ["unshare", "--mount", "sh", "-c", _ENTER, "rabbitmq", str(root), str(folder), _SERVER]
    ready = partial(greets, port, AMQP_HELLO, AMQP_METHOD)
    log = folder / "rabbitmq.log"
    return _Rabbit(
        "rabbitmq", port, program, log, environment, start_timeout=120.0, is_ready=ready, registry=registry
    )
