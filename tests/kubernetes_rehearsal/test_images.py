"""The images of the rehearsal."""

from __future__ import annotations

from kubernetes_rehearsal.images import CHANGED, FIRST, changed_config, pause_config
from tools.image.__main__ import image_config


def test_the_changed_image_differs_in_its_labels_only() -> None:
    first, changed = image_config("1970-01-01T00:00:00Z", FIRST), changed_config()
    assert first != changed
    label = "org.opencontainers.image.revision"
    assert changed["config"]["Labels"].pop(label) == CHANGED
    assert first["config"]["Labels"].pop(label) == FIRST
    assert first == changed


def test_the_pause_image_runs_one_program_without_root() -> None:
    settings = pause_config("amd64")["config"]
    assert settings["Entrypoint"] == ["/pause"]
    assert not settings["User"].startswith("0")
