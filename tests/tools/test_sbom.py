"""The software bill of materials."""

from __future__ import annotations

from pathlib import Path

from tools.hashes import canonical, pinned
from tools.sbom import bill, hashes_in, reached

_HASH_A, _HASH_B = "a" * 64, "b" * 64


def test_requirements_are_followed_with_their_extras() -> None:
    requirements = {
        "app": ["web[fast]>=1", 'extra-only; extra == "more"', 'old; python_version < "3"'],
        "web": ["base", 'speed; extra == "fast"', 'slow; extra == "slow"'],
        "base": ["web"],
        "extra-only": ["Deep_One"],
    }
    assert set(reached("app", (), requirements)) == {"web", "base", "speed"}
    assert set(reached("app", {"more"}, requirements)) == {"web", "base", "speed", "extra-only", "deep-one"}


def test_a_component_has_version_licence_scope_and_hashes() -> None:
    hashes = {"a": [_HASH_A, _HASH_B], "b-c": [_HASH_B], "d": [_HASH_A]}
    pins = [("a", "1.0"), ("B_c", "2.0"), ("d", "3")]
    document = bill(pins, hashes, {"a": "MIT"}, {"a"}, {"a", "b-c"})
    first, second, third = document["components"]
    assert first["purl"] == "pkg:pypi/a@1.0"
    assert first["licenses"] == [{"expression": "MIT"}]
    assert [each["value"] for each in first["properties"]] == [f"sha256:{_HASH_A}", f"sha256:{_HASH_B}"]
    assert second["purl"] == "pkg:pypi/b-c@2.0"
    assert [each["scope"] for each in (first, second, third)] == ["required", "optional", "excluded"]


def test_each_pinned_package_has_hashes() -> None:
    hashes = hashes_in(Path("hashes.txt").read_text())
    pins = pinned(Path("constraints.txt").read_text())
    assert set(hashes) == {canonical(name) for name, _ in pins}
    assert all(hashes.values())
