"""The Helm chart: values, schema, and what Helm renders of them. No Kubernetes is needed."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import jsonschema
import pytest
import yaml
from cryptography import x509

from penstock import __version__
from penstock.cli.commands.dashboards import write_files
from penstock.cli.config_sources import effective
from penstock.cli.container.identity import Pod, broker_settings
from penstock.model.config import BrokerConfig
from tests.deploy.charts import CHART, SCHEMA, TEMPLATES, VALUES, helm, leaves, references, rendered, template
from tests.deploy.command_lines import parsed

#: values with everything on, as each kind of cluster has it
EVERYTHING: Final[dict[str, Any]] = {
    "replicaCount": 5,
    "image": {"pullSecrets": ["registry"]},
    "config": {"log.retention.hours": 72},
    "nodeSelector": {"disk": "fast"},
    "tolerations": [{"key": "queue", "operator": "Exists"}],
    "priorityClassName": "high",
    "antiAffinity": "required",
    "podAnnotations": {"team": "queues"},
    "extraEnv": [{"name": "PENSTOCK_LOG_RETENTION_BYTES", "value": "1000"}],
    "persistence": {"storageClass": "fast"},
    "auth": {"superUsers": ["ops"], "users": [{"name": "app", "secretName": "app-password"}]},
    "serviceAccount": {"annotations": {"role": "queue"}},
    "networkPolicy": {"monitoring": [{"namespaceSelector": {}}]},
    "external": {"enabled": True, "annotations": {"name": "b{id}.example.com"}},
    "autoscaling": {"enabled": True, "scaleDown": True},
    "externalMetrics": {"enabled": True},
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "dashboards": {"enabled": True},
    "alerts": {"enabled": True, "labels": {"rules": "yes"}},
    "console": {"enabled": True, "allowedHosts": ["queue.example.com"]},
    "backup": {"enabled": True, "archive": "s3://bucket/queue", "storeConfigSecret": "store"},
}
PLAIN: Final[dict[str, Any]] = {
    "replicaCount": 1,
    "voters": 1,
    "replicationFactor": 1,
    "minInsyncReplicas": 1,
    "tls": {"enabled": False},
    "auth": {"enabled": False},
    "persistence": {"enabled": False},
    "rackAwareness": False,
    "networkPolicy": {"enabled": False},
    "backup": {"enabled": True, "archive": "/archive", "claimName": "archive"},
    "console": {"enabled": True},
}
BALANCED: Final[dict[str, Any]] = {
    "tls": {"source": "certManager", "issuer": {"name": "company"}, "extraNames": ["b0.example.com"]},
    "auth": {"adminSecret": "admins"},
    "autoscaling": {"enabled": True, "metric": "load", "load": 0.29},
    "externalMetrics": {"enabled": True},
    "external": {"enabled": True, "type": "LoadBalancer", "host": "b{id}.example.com", "brokers": 7},
    "serviceAccount": {"create": False, "name": "queues"},
    "networkPolicy": {"clients": [{"namespaceSelector": {}}]},
}
OWN_SECRET: Final[dict[str, Any]] = {
    "tls": {"source": "secret", "secretName": "certificates"},
    "auth": {"enabled": False},
}
CASES: Final = {
    "defaults": {},
    "everything": EVERYTHING,
    "plain": PLAIN,
    "balanced": BALANCED,
    "own": OWN_SECRET,
}
#: secrets and claims that users make, by the values above
USERS_OWN: Final = {"app-password", "store", "admins", "certificates", "archive", "queue-penstock-tls"}
#: made by Kubernetes in every namespace
ALWAYS: Final = {"default", "extension-apiserver-authentication-reader"}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> dict[str, Any]:
    return dict(CASES[request.param])


def described(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    for name, each in schema.get("properties", {}).items():
        yield f"{path}{name}", each.get("description", "")
        yield from described(each, f"{path}{name}.")


def parents(paths: Iterable[str]) -> set[str]:
    """The maps that values are in."""
    words = [path.split(".") for path in paths]
    return {".".join(each[:count]) for each in words for count in range(1, len(each))}


def test_the_version_is_that_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


def test_every_value_is_described() -> None:
    texts = dict(described(SCHEMA))
    assert [path for path, text in texts.items() if not text.endswith(".")] == []
    free = ("resources.", "labels.")
    paths = [path for path in leaves(VALUES) if not any(each in path for each in free)]
    assert [path for path in paths if path not in texts] == []
    lists = ("auth.users", "global")
    there = set(leaves(VALUES)) | parents(leaves(VALUES))
    assert [p for p in texts if p not in there and not p.startswith(lists) and "resources." not in p] == []


def test_every_value_is_used_and_every_used_one_exists() -> None:
    used = references()
    named = set(leaves(VALUES))
    unused = [path for path in named if not any(path == each or path.startswith(f"{each}.") for each in used)]
    assert unused == []
    assert used - named - parents(named) == set()


def test_the_schema_accepts_the_values_and_refuses_others(case: dict[str, Any]) -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    jsonschema.validate(VALUES, SCHEMA)
    jsonschema.validate(case, SCHEMA)
    for wrong in ({"replicas": 3}, {"voters": 2}, {"tls": {"source": "magic"}}, {"clusterId": "short"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, SCHEMA)


def test_dashboards_and_rules_are_those_of_the_code(tmp_path: Path) -> None:
    """`make pages` writes them."""
    written = {path.name: path.read_text() for path in write_files(tmp_path)}
    assert {path.name: path.read_text() for path in (CHART / "files").iterdir()} == written


def test_no_template_is_left_out() -> None:
    assert "penstock.brokersMax" in TEMPLATES["_helpers.tpl"]
    assert all(text.strip() for text in TEMPLATES.values())


# -- what Helm makes of it


@pytest.mark.process
def test_helm_finds_no_fault() -> None:
    done = helm("lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.process
@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ("tls.enabled=false", "auth.enabled needs tls.enabled"),
        ("replicaCount=2", "must not be below voters"),
        ("replicationFactor=4", "must not be above replicaCount"),
        ("tls.source=secret", "needs tls.secretName"),
        ("backup.enabled=true", "needs backup.archive"),
        ("preStop.timeoutSeconds=900", "must be below terminationGracePeriodSeconds"),
        ("replicas=5", "dditional propert"),
        ("autoscaling.enabled=true,autoscaling.metric=load", "needs externalMetrics.enabled"),
        ("externalMetrics.enabled=true,auth.enabled=false", "needs auth.enabled"),
        ("externalMetrics.enabled=true,tls.source=secret,tls.secretName=a", "needs externalMetrics.caBundle"),
    ],
)
def test_wrong_values_are_refused(values: str, reason: str) -> None:
    done = template("--set", values)
    assert done.returncode != 0
    assert reason in done.stderr


@pytest.mark.process
def test_manifests_refer_to_objects_that_exist(case: dict[str, Any], tmp_path: Path) -> None:
    found = rendered(case, tmp_path)
    names = {(each["kind"], each["metadata"]["name"]) for each in found}
    assert len(names) == len(found), "two objects of one kind have the same name"
    for kind, name in sorted(referred(found)):
        assert (kind, name) in names or name in USERS_OWN | ALWAYS or name == "queues", f"no {kind} {name}"


@pytest.mark.process
def test_ports_and_labels_lead_to_pods(case: dict[str, Any], tmp_path: Path) -> None:
    found = rendered(case, tmp_path)
    pods = [pod for pod in map(pod_of, found) if pod is not None]
    for service in (each for each in found if each["kind"] == "Service"):
        selector = {
            name: value for name, value in service["spec"]["selector"].items() if "pod-name" not in name
        }
        chosen = [pod for pod in pods if selector.items() <= pod["metadata"].get("labels", {}).items()]
        ports = {port["name"] for pod in chosen for port in containers(pod)[0].get("ports", ())}
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports


@pytest.mark.process
def test_every_command_exists(case: dict[str, Any], tmp_path: Path) -> None:
    commands = 0
    for pod in filter(None, map(pod_of, rendered(case, tmp_path))):
        for container in containers(pod):
            words = list(map(str, container["args"]))
            given_by_kubernetes = {
                ("container", "up"): ["--pod=queue-0"],
                ("container", "unregister"): ["--namespace=prod"],
                ("container", "external-metrics"): ["--namespace=prod"],
            }
            parsed([*words, *given_by_kubernetes.get((words[0], words[1]), [])])
            hook = container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command")
            if hook is not None:
                given = {each["name"] for each in container["env"]}
                assert {"POD_NAME", "POD_NAMESPACE", "PENSTOCK_BOOTSTRAP"} <= given
                parsed([*hook[3:], "--pod=queue-0", "--namespace=prod"])
            commands += 1
    assert commands >= 2


@pytest.mark.process
def test_the_config_of_every_pod_is_accepted(
    case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = rendered(case, tmp_path)
    (config,) = (
        each for each in found if each["kind"] == "ConfigMap" and "-config" in each["metadata"]["name"]
    )
    (stateful,) = (each for each in found if each["kind"] == "StatefulSet")
    file = tmp_path / "broker.properties"
    file.write_text(config["data"]["broker.properties"])
    (container,) = containers(stateful["spec"]["template"])
    given = parsed(
        [*map(str, container["args"]), "--pod=queue-penstock-4", "--host-ip=192.0.2.1", "--rack=a"]
    )
    voters = int(case.get("voters", 3))
    for ordinal in range(5):
        pod = Pod(
            name=f"queue-penstock-{ordinal}",
            domain=given["domain"],
            voters=voters,
            internal_port=given["internal_port"],
            host_ip="192.0.2.1",
        )
        settings = broker_settings(pod, given["advertise"], "a")
        broker = BrokerConfig(effective(file, {}, [f"{name}={value}" for name, value in settings.items()])[1])
        assert broker.node_id == ordinal
        assert broker.is_secured == case.get("tls", {}).get("enabled", True)
        roles = settings["process.roles"].split(",")
        assert ("controller" in roles) == (ordinal < voters)


@pytest.mark.process
def test_a_set_never_begins_below_its_voters(case: dict[str, Any], tmp_path: Path) -> None:
    """Without a number Kubernetes would take 1, and without a majority of voters nothing could be changed."""
    (stateful,) = (each for each in rendered(case, tmp_path) if each["kind"] == "StatefulSet")
    assert stateful["spec"]["replicas"] >= case.get("voters", VALUES["voters"])


@pytest.mark.process
def test_the_autoscaler_asks_for_the_load_of_brokers_as_a_part_of_a_core(tmp_path: Path) -> None:
    (autoscaler,) = (e for e in rendered(BALANCED, tmp_path) if e["kind"] == "HorizontalPodAutoscaler")
    (metric,) = autoscaler["spec"]["metrics"]
    assert metric["external"] == {
        "metric": {"name": "penstock_broker_load"},
        "target": {"type": "AverageValue", "averageValue": "290m"},
    }


@pytest.mark.process
def test_the_api_server_verifies_the_generated_certificate_of_external_metrics(tmp_path: Path) -> None:
    found = rendered({"externalMetrics": {"enabled": True}}, tmp_path)
    (api,) = (each for each in found if each["kind"] == "APIService")
    (secret,) = (each for each in found if each["metadata"]["name"].endswith("-tls"))
    assert api["spec"]["caBundle"] == secret["data"]["ca.crt"]
    host = f"{api['spec']['service']['name']}.prod.svc"
    certificate = x509.load_pem_x509_certificate(base64.b64decode(secret["data"]["tls.crt"]))
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert host in names.get_values_for_type(x509.DNSName)


@pytest.mark.process
def test_no_pod_mounts_the_key_of_the_authority(tmp_path: Path) -> None:
    """It makes certificates that every broker trusts."""
    found = rendered({"console": {"enabled": True}}, tmp_path)
    with_key = {each["metadata"]["name"] for each in found if "ca.key" in each.get("data", {})}
    assert len(with_key) == 1
    assert with_key.isdisjoint(name for kind, name in referred(found) if kind == "Secret")


@pytest.mark.process
def test_containers_have_no_rights(case: dict[str, Any], tmp_path: Path) -> None:
    for pod in filter(None, map(pod_of, rendered(case, tmp_path))):
        assert pod["spec"]["securityContext"]["runAsNonRoot"]
        for container in containers(pod):
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"]
            assert not context["allowPrivilegeEscalation"]
            assert context["capabilities"]["drop"] == ["ALL"]
            assert "memory" in container["resources"]["limits"]


def pod_of(manifest: dict[str, Any]) -> dict[str, Any] | None:
    """The template of the pods of a workload."""
    spec = manifest.get("spec", {})
    if manifest["kind"] == "CronJob":
        spec = spec["jobTemplate"]["spec"]
    template = spec.get("template")
    return template if isinstance(template, dict) else None


def containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return list(pod["spec"]["containers"])


def referred(manifests: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Kind and name of each object that others name."""
    for manifest in manifests:
        pod = pod_of(manifest)
        if pod is not None:
            spec = pod["spec"]
            yield "ServiceAccount", spec.get("serviceAccountName", "default")
            for volume in spec.get("volumes", ()):
                if "configMap" in volume:
                    yield "ConfigMap", volume["configMap"]["name"]
                if "secret" in volume:
                    yield "Secret", volume["secret"]["secretName"]
                if "persistentVolumeClaim" in volume:
                    yield "PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]
            mounted = {each["name"] for each in spec.get("volumes", ())}
            mounted |= {each["metadata"]["name"] for each in manifest["spec"].get("volumeClaimTemplates", ())}
            for container in spec["containers"]:
                assert {each["name"] for each in container.get("volumeMounts", ())} <= mounted
        if manifest["kind"] == "StatefulSet":
            yield "Service", manifest["spec"]["serviceName"]
        if manifest["kind"].endswith("RoleBinding"):
            yield manifest["roleRef"]["kind"], manifest["roleRef"]["name"]
            yield "ServiceAccount", manifest["subjects"][0]["name"]
        if manifest["kind"] == "HorizontalPodAutoscaler":
            target = manifest["spec"]["scaleTargetRef"]
            yield target["kind"], target["name"]
