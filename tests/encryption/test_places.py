"""The places that keys of files are bound to: stable under renames of storage, different for other files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.encryption.places import Places, is_partition_folder
from penstock.model.ids import METADATA_TOPIC_ID, format_topic_id

TOPIC = "AAAAAAAAQACAAAAAAAAAAQ"
LOG = "00000000000000000042.log"
FOLDER = "/data/topics/t/partition-3"
FILES = {
    "/data/meta.json": json.dumps({"directory.id": "D", "cluster.id": "C", "node.id": 7}),
    f"{FOLDER}/partition.metadata": f"version: 0\ntopic_id: {TOPIC}\npartition: 3\ncrc32c: 1\n",
    "/data/topics/u/topic.metadata": f"version: 0\ntopic_id: {TOPIC}\n",
    "/data/topics/__cluster_metadata/partition-0/partition.metadata": (
        f"version: 0\ntopic_id: {format_topic_id(METADATA_TOPIC_ID)}\npartition: 0\n"
    ),
}


def read(path: str) -> bytes:
    if path not in FILES:
        raise FileNotFoundError(path)
    return FILES[path].encode()


@pytest.mark.parametrize(
    ("path", "place"),
    [
        (f"{FOLDER}/{LOG}", f"{TOPIC}/3/{LOG}"),
        (f"{FOLDER}/{LOG}.deleted", f"{TOPIC}/3/{LOG}"),
        (f"{FOLDER}/{LOG}.misplaced", f"{TOPIC}/3/{LOG}"),
        (f"{FOLDER}/{LOG}.cut.12", f"{TOPIC}/3/{LOG}"),
        (f"{FOLDER}/{LOG}.unreadable.2", f"{TOPIC}/3/{LOG}"),
        (f"{FOLDER}/{LOG}.encryption", f"{TOPIC}/3/{LOG}"),
        (f"{FOLDER}/cleaned/{LOG}", f"{TOPIC}/3/{LOG}"),
        (f"{FOLDER}/swap/{LOG}", f"{TOPIC}/3/{LOG}"),
        (f"{FOLDER}/00000000000000000042.txnindex.tmp", f"{TOPIC}/3/00000000000000000042.txnindex"),
        (f"{FOLDER}/leader-epoch-checkpoint", f"{TOPIC}/3/leader-epoch-checkpoint"),
        (f"{FOLDER}/partition.metadata", "partition.metadata"),
        ("/data/topics/u/partition-5/x", f"{TOPIC}/5/x"),
        ("/data/topics/u/topic.metadata", "topic.metadata"),
        ("/data/meta.json", "meta.json"),
        ("/data/clean-shutdown", "directory/D//clean-shutdown"),
        ("/data/quarantine/e/quarantine.json", "directory/D/quarantine/e/quarantine.json"),
        ("/data/topics/__cluster_metadata/partition-0/quorum-state", "cluster/C/7/quorum-state"),
        ("/data/topics/__cluster_metadata/partition-0/9-1.checkpoint.part", "cluster/C/7/9-1.checkpoint"),
        ("/elsewhere/x", "directory///x"),
    ],
)
def test_places(path: str, place: str) -> None:
    assert Places(read).of(path) == place.encode()


def test_long_places_are_shortened_and_differ() -> None:
    places = Places(read)
    long = [places.of(f"/data/quarantine/{'x' * 300}{n}/quarantine.json") for n in range(2)]
    assert len(set(long)) == 2 and all(len(place) < 100 for place in long)


def test_the_identity_of_a_folder_is_forgotten_when_it_changes(tmp_path: Path) -> None:
    def real(path: str) -> bytes:
        return Path(path).read_bytes()

    folder = tmp_path / "topics" / "t" / "partition-0"
    folder.mkdir(parents=True)
    places = Places(real)
    metadata = folder / "partition.metadata"
    metadata.write_text(f"topic_id: {TOPIC}\npartition: 0\n")
    assert places.of(f"{folder}/x") == f"{TOPIC}/0/x".encode()
    metadata.write_text(f"topic_id: {TOPIC}\npartition: 9\n")
    assert places.of(f"{folder}/x") == f"{TOPIC}/0/x".encode()
    places.forget(str(tmp_path / "topics"))
    assert places.of(f"{folder}/x") == f"{TOPIC}/9/x".encode() and places.is_known(str(folder))
    places.forget(str(folder))
    metadata.unlink()
    assert not places.is_known(str(folder)), "neither file says which partition it is"


def test_partition_folders() -> None:
    assert is_partition_folder("/x/partition-0") and is_partition_folder("/x/partition-12")
    assert not is_partition_folder("/x/partition-01") and not is_partition_folder("/x/damaged")
