"""What rules that compare GPUs remember of each."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.telemetry.pipeline.detectors.features import ABOUT
from penstock.telemetry.pipeline.detectors.peers import Peers

RULES = ("slow",)
GPUS = [f"GPU-{number}" for number in range(4)]


def texts_of(peers: Peers) -> dict[str, list[str | None]]:
    return {name: [peers.text(name, gpu) for gpu in range(len(peers.gpu_ids))] for name in ABOUT}


def test_names_of_pods_that_have_ended_are_forgotten() -> None:
    peers = Peers(RULES)
    numbers = peers.number(pa.table({"gpu_id": pa.chunked_array([pa.array(GPUS).dictionary_encode()])}))
    for step in range(50):
        about: dict[str, list[str | None]] = {name: [f"{name} {gpu}" for gpu in GPUS] for name in ABOUT}
        about["pod"] = [f"pod {step} of {gpu}" for gpu in GPUS]
        about["job"] = [None, *(f"job {step}" for _ in GPUS[1:])]
        columns = {
            name: peers._encoded(pa.chunked_array([pa.array(texts, pa.string()).dictionary_encode()]))
            for name, texts in about.items()
        }
        nothing = {name: np.zeros(len(GPUS)) for name in (*peers.measures, *peers.flags)}
        peers.take(step, numbers, columns | nothing)
        stored = peers.to_table()
        assert texts_of(peers) == about
        assert {name: stored[name].to_pylist() for name in ABOUT} == about
        assert texts_of(Peers.from_table(stored, RULES)) == about
        in_use = len({text for texts in about.values() for text in texts if text is not None})
        assert len(stored["pod"].combine_chunks().dictionary) <= 2 * in_use
