"""The script of a node."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from lab.kubernetes.layout import Node
from lab.kubernetes.machines import node_script, node_words

NODE = Node(3, "zone-c")
FILES = {name: Path(f"/n/{name}.conf") for name in ("containerd", "kubelet", "kube-proxy", "access")}


def script() -> str:
    images = [Path("/images/a.tar"), Path("/images/b.tar")]
    return node_script(NODE, Path("/n"), FILES, images, {"topology.kubernetes.io/zone": NODE.zone})


@pytest.mark.process
def test_the_script_is_one_that_a_shell_reads() -> None:
    done = subprocess.run(["sh", "-n"], input=script(), text=True, capture_output=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_images_are_imported_once_before_kubelet_starts() -> None:
    lines = script().splitlines()
    (imported,) = (at for at, line in enumerate(lines) if "images import" in line)
    (kubelet,) = (at for at, line in enumerate(lines) if line.startswith("kubelet "))
    assert imported < kubelet
    assert lines[imported].startswith("test -f /n/images-imported || ")
    assert lines[imported].count("images import") == 2


def test_settings_of_the_machine_are_covered_before_kubelet_starts() -> None:
    lines = script().splitlines()
    (kubelet,) = (at for at, line in enumerate(lines) if line.startswith("kubelet "))
    covered = [at for at, line in enumerate(lines) if line.startswith("mount --bind /run/settings/")]
    assert len(covered) == 6
    assert max(covered) < kubelet


def test_the_zone_is_a_label_of_the_node() -> None:
    assert "--node-labels=topology.kubernetes.io/zone=zone-c" in script()


def test_a_node_ends_with_its_first_process() -> None:
    words = node_words(NODE, Path("/n/node.sh"))
    assert words[:2] == ("nsenter", "--net=/run/netns/node-3")
    assert "--kill-child" in words
