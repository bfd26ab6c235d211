"""The programs of a cluster, built once into the lab: from Go modules, and from packages of Debian.

python -m lab.kubernetes.programs      # build all of them
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from lab.debian import codename, unpack
from lab.helm import KUBERNETES, helm_built, helm_program
from lab.home import LabError, MissingTool, built, command, lab_root, require
from lab.kubernetes.modules import kubernetes_module, plain_module, version_flags

__all__ = ["Programs", "programs", "programs_built"]

_CONTROL: Final = ("kube-scheduler", "kubelet", "kube-proxy", "kube-controller-manager", "kube-apiserver")
_PACKAGES: Final = (
    "etcd-server",
    "containerd",
    "runc",
    "containernetworking-plugins",
    "libseccomp2",
    "nftables",
    "libnftables1",
    "libnftnl11",
    "libmnl0",
    "libjansson4",
)
_SYSTEM: Final = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
_PAUSE: Final = """package main

import (
	"os"
	"os/signal"
	"syscall"
)

// Holds the namespaces of a pod, reaps what ends in it, and ends with SIGTERM.
func main() {
	ends := make(chan os.Signal, 1)
	signal.Notify(ends, syscall.SIGINT, syscall.SIGTERM)
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	for {
		select {
		case <-ends:
			return
		case <-children:
			for {
				pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
				if err != nil || pid <= 0 {
					break
				}
			}
		}
	}
}
"""


class Programs(NamedTuple):
    """Folders with programs, and the programs that others installed or built."""

    #: of Kubernetes
    control: Path
    pause: Path
    #: an unpacked tree of Debian packages
    debian: Path
    helm: Path
    kubectl: Path

    @property
    def path(self) -> str:
        """The variable PATH of the programs of nodes: containerd finds runc by it, and kube-proxy nft."""
        own = (self.control, self.debian / "usr/bin", self.debian / "usr/sbin")
        return ":".join([*map(str, own), *_SYSTEM])

    @property
    def libraries(self) -> str:
        """The variable LD_LIBRARY_PATH: the packages are not installed."""
        return ":".join(map(str, sorted(self.debian.glob("usr/lib/*-linux-gnu"))))


def programs() -> Programs:
    """All programs, built on first use (about ten minutes); `LabError` if one cannot be had."""
    require("kubectl", "unshare", "nsenter", "ip", "go", "apt-get", "dpkg-deb")
    suite = codename()
    home = lab_root() / "kubernetes"
    control = built(home / "control", (KUBERNETES, *_CONTROL), _build_control)
    return Programs(
        control=control,
        pause=built(home / "pause", (_PAUSE,), _build_pause) / "pause",
        debian=built(home / "debian", (suite, *_PACKAGES), lambda folder: unpack(folder, suite, _PACKAGES)),
        helm=helm_built() or helm_program(),
        kubectl=_kubectl(),
    )


def programs_built() -> bool:
    """Whether a start would build nothing."""
    home = lab_root() / "kubernetes"
    names = ("control", "pause", "debian")
    return all((home / f"{name}.stamp").is_file() for name in names) and helm_built() is not None


def _kubectl() -> Path:
    found = shutil.which("kubectl")
    if found is None:
        raise MissingTool("kubectl not found on this machine")
    return Path(found)


def _build_control(folder: Path) -> None:
    print(f"building Kubernetes {KUBERNETES} (once, about 20 minutes of a core)", flush=True)
    described = command(["go", "mod", "download", "-json", f"k8s.io/kubernetes@{KUBERNETES}"], folder)
    published = Path(json.loads(described)["GoMod"]).read_text()
    module = folder / "module"
    _write_module(module, kubernetes_module(published, KUBERNETES), "package kubernetes\n")
    commands = [f"k8s.io/kubernetes/cmd/{name}" for name in _CONTROL]
    _go_build(module, f"{folder}/", commands, version_flags(KUBERNETES))


def _build_pause(folder: Path) -> None:
    _write_module(folder / "module", plain_module("pause", "1.24.0"), _PAUSE)
    _go_build(folder / "module", str(folder / "pause"), ["."])


def _write_module(folder: Path, module: str, source: str) -> None:
    folder.mkdir()
    (folder / "go.mod").write_text(module)
    (folder / "main.go").write_text(source)


def _go_build(module: Path, target: str, packages: Sequence[str], flags: Sequence[str] = ()) -> None:
    # `go build` adds the sums of modules to go.sum itself: `go mod tidy` would download those of tests, too.
    variables = ["GOTOOLCHAIN=local", "CGO_ENABLED=0", "GOGC=400", "GOFLAGS=-mod=mod -buildvcs=false -p=8"]
    linked = f"-ldflags={' '.join(['-s', '-w', *flags])}"
    words = ["go", "build", "-trimpath", linked, "-o", target, *packages]
    command(["nice", "-n", "19", "env", *variables, *words], module)


if __name__ == "__main__":
    try:
        programs()
    except LabError as error:
        sys.exit(f"a cluster of Kubernetes cannot be had here: {error}")
