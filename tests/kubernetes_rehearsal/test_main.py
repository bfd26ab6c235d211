"""What `make kubernetes` says where it cannot run."""

from __future__ import annotations

import pytest

from kubernetes_rehearsal import __main__ as rehearsal
from lab.home import MissingTool


def test_a_machine_without_go_is_told_how_to_use_its_cluster(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing() -> None:
        raise MissingTool("go not found on this machine")

    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setattr(rehearsal, "programs", missing)
    monkeypatch.setattr("sys.argv", ["kubernetes_rehearsal"])
    assert rehearsal.main() == 2
    said = capsys.readouterr().err
    assert "go not found on this machine" in said
    assert "KUBECONFIG=FILE IMAGE=… CHANGED=…" in said


@pytest.mark.parametrize(
    ("image", "changed"), [("", ""), ("registry/penstock:1", "other/penstock:2"), ("penstock", "penstock:2")]
)
def test_an_existing_cluster_needs_two_tags_of_an_image(
    image: str, changed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rehearsal, "require", lambda *programs: None)
    monkeypatch.setattr("sys.argv", ["kubernetes_rehearsal"])
    for name, value in {"KUBECONFIG": "/access", "IMAGE": image, "CHANGED": changed}.items():
        monkeypatch.setenv(name, value)
    assert rehearsal.main() == 2
    assert "two tags of one repository" in capsys.readouterr().err
