"""Command lines of the control plane."""

from __future__ import annotations

from pathlib import Path

from lab.kubernetes.control import Files, api_server_words, controller_words, etcd_words, scheduler_words


def options(words: tuple[str, ...]) -> dict[str, str]:
    return dict(word.removeprefix("--").split("=", 1) for word in words[1:])


def test_tokens_of_accounts_are_verified_with_the_key_that_signs_them() -> None:
    files = Files(Path("/control"))
    server, controllers = options(api_server_words(files)), options(controller_words(files))
    assert server["service-account-key-file"] == str(files.accounts)
    keys = {server["service-account-signing-key-file"], controllers["service-account-private-key-file"]}
    assert keys == {str(files.accounts_key)}


def test_aggregated_apis_are_called_at_their_pods() -> None:
    assert options(api_server_words(Files(Path("/control"))))["enable-aggregator-routing"] == "true"


def test_controllers_and_scheduler_are_users_of_their_own() -> None:
    files = Files(Path("/control"))
    found = {options(words)["kubeconfig"] for words in (controller_words(files), scheduler_words(files))}
    assert found == {
        "/control/kube-controller-manager.kubeconfig",
        "/control/system-kube-scheduler.kubeconfig",
    }


def test_the_store_listens_on_loopback_only() -> None:
    found = options(etcd_words(Path("/data")))
    assert {found["listen-client-urls"], found["listen-peer-urls"]} == {
        "http://127.0.0.1:2379",
        "http://127.0.0.1:2380",
    }
