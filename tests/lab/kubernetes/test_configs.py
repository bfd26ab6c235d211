"""Config files of the programs of a cluster on one machine."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

from lab.kubernetes import configs
from lab.kubernetes.layout import GATEWAY, NODES, Node

NODE = Node(2, "zone-b")


def test_containerd_keeps_images_on_disk_and_state_in_memory() -> None:
    found = tomllib.loads(configs.containerd_config(Path("/node"), Path("/cni"), Path("/programs")))
    assert (found["root"], found["state"]) == ("/node/containerd", "/run/containerd")
    plugin = found["plugins"]["io.containerd.grpc.v1.cri"]
    assert plugin["cni"] == {"bin_dir": "/programs/usr/lib/cni", "conf_dir": "/cni"}
    assert plugin["sandbox_image"] == configs.PAUSE_IMAGE


def test_pods_of_a_node_get_addresses_of_its_range() -> None:
    (plugin,) = json.loads(configs.pod_network(NODE, Path("/node")))["plugins"]
    assert plugin["ipam"]["ranges"] == [[{"subnet": NODE.pods}]]


def test_kubelets_have_control_groups_of_their_own() -> None:
    roots = {json.loads(configs.kubelet_config(each, Path("/n")))["cgroupRoot"] for each in NODES}
    assert roots == {f"/{configs.CGROUP}/{node.name}" for node in NODES}


def test_kube_proxy_changes_no_limit_of_the_machine() -> None:
    found = json.loads(configs.kube_proxy_config(NODE, Path("/access")))
    assert found["mode"] == "nftables"
    assert (found["conntrack"]["maxPerCore"], found["conntrack"]["min"]) == (0, 0)


def test_tokens_name_users_and_their_groups() -> None:
    users = {"admin": "t1", "names": "t2", "node-2": "t3"}
    assert configs.tokens(users, [NODE]) == (
        't1,admin,admin,"system:masters"\nt2,names,names\nt3,system:node:node-2,node-2,"system:nodes"\n'
    )


def test_a_kubeconfig_has_one_context() -> None:
    found = json.loads(configs.kubeconfig(f"https://{GATEWAY}:6443", Path("/ca.pem"), "secret"))
    assert found["current-context"] == found["contexts"][0]["name"]
    assert found["users"][0]["user"] == {"token": "secret"}


def test_volumes_belong_to_a_zone_except_that_of_the_archive() -> None:
    volumes = [each for each in configs.volumes(NODES, Path("/v")) if each["kind"] == "PersistentVolume"]
    zones = []
    for each in volumes:
        (term,) = each["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
        zones += term["matchExpressions"][0].get("values", ["any"])
    assert sorted(zones) == ["any", *(zone for zone in ("zone-a", "zone-b", "zone-c") for _ in range(2))]


def test_the_name_server_may_read_services_and_change_nothing() -> None:
    role, binding = configs.cluster_objects()
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"list"}
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
