"""The state of the rules that compare GPUs: the newest signals of every GPU of the fleet, and open alerts.

One row of every array is one GPU, in the order of their first samples. Texts are codes: a fleet has few
hosts, models and jobs, and groups of equal codes are found without comparing texts.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.telemetry.pipeline.columns import Ints
from penstock.telemetry.pipeline.detectors.features import ABOUT
from penstock.telemetry.pipeline.detectors.gpu_rules import BY_NOTHING
from penstock.telemetry.pipeline.detectors.memory import held_of, lists, rules_metadata

__all__ = ["NO_TEXT", "Peers"]

#: the code of a missing text
NO_TEXT: Final = -1
_MEASURES: Final = ("temperature", "power", "clock", "util", "busy_share")
_LASTING: Final = ("device", "pci_bus_id", "model")
_OF_GPUS: Final = ("temperature", "power", "clock", "util")
_FLAGS: Final = {"busy_source": BY_NOTHING, "throttled": 0}


class Peers:
    """Arrays over all GPUs. `take` changes them, and is the only one to do so besides incidents."""

    def __init__(self, rules: tuple[str, ...]) -> None:
        self.rules = rules
        self.gpu_ids: list[str] = []
        self.number_of: dict[str, int] = {}
        self._ids = pa.array([], pa.string())
        self._texts: list[str] = []
        self._code_of: dict[str, int] = {}
        self.codes: dict[str, Ints] = {name: np.zeros(0, np.int64) for name in ABOUT}
        self.seen_ms = np.zeros(0, np.int64)
        #: when the last alert about its hardware opened
        self.hardware_ms = np.zeros(0, np.int64)
        self.measures: dict[str, Any] = {name: np.zeros(0) for name in _MEASURES}
        self.flags: dict[str, Any] = {name: np.zeros(0, np.int8) for name in _FLAGS}
        #: how many GPUs its host had when the GPU was last heard, itself included
        self.companions = np.zeros(0, np.int64)
        #: whether a GPU has a sample in this step
        self.heard = np.zeros(0, dtype=bool)
        #: by rule: bad since, good since while open, and open since; 0 where it is not so
        self.held = np.zeros((0, len(rules), 3), np.int64)

    @property
    def newest_ms(self) -> int:
        """The newest step with a sample of any GPU; 0 if there is none."""
        return int(self.seen_ms.max(initial=0))

    def text(self, name: str, gpu: int) -> str | None:
        code = int(self.codes[name][gpu])
        return None if code == NO_TEXT else self._texts[code]

    def number(self, signals: Any) -> Ints:
        """The number of each row's GPU; new GPUs get the next ones."""
        encoded = signals["gpu_id"].unify_dictionaries().combine_chunks()
        # Arrow looks up a million ids in a quarter of the time that a dictionary takes.
        numbers = pc.index_in(encoded.dictionary, self._ids).fill_null(-1).to_numpy().astype(np.int64)
        unknown = np.flatnonzero(numbers < 0)
        for place, gpu_id in zip(unknown, encoded.dictionary.take(unknown).to_pylist(), strict=True):
            numbers[place] = self.number_of.setdefault(gpu_id, len(self.gpu_ids))
            if numbers[place] == len(self.gpu_ids):
                self.gpu_ids.append(gpu_id)
        if len(unknown):
            self._ids = pa.array(self.gpu_ids, pa.string())
            self._grow(len(self.gpu_ids))
        whose: Ints = numbers[encoded.indices.to_numpy()]
        return whose

    def columns_of(self, signals: Any) -> dict[str, Any]:
        """The columns of signals as numbers."""
        columns = {name: self._encoded(signals[name]) for name in ABOUT}
        return columns | {name: signals[name].to_numpy() for name in (*_MEASURES, *_FLAGS)}

    def _encoded(self, column: Any) -> Ints:
        encoded = column.unify_dictionaries().combine_chunks()
        codes = np.full(len(encoded.dictionary) + 1, NO_TEXT, np.int64)
        for place, text in enumerate(encoded.dictionary.to_pylist()):
            codes[place] = self._code_of.setdefault(text, len(self._texts))
            if codes[place] == len(self._texts):
                self._texts.append(text)
        found: Ints = codes[encoded.indices.fill_null(len(codes) - 1).to_numpy(zero_copy_only=False)]
        return found

    def take(self, step_ms: int, numbers: Ints, columns: dict[str, Any]) -> Ints:
        """Take one step's rows, except those older than their GPU's last; the GPUs that are left."""
        is_news = self.seen_ms[numbers] <= step_ms
        heard = numbers[is_news]
        self.seen_ms[heard] = step_ms
        for kept in (self.codes, self.measures, self.flags):
            for name, own in kept.items():
                reported = columns[name][is_news]
                # A model and a place stay known once they were reported; all other values may end.
                own[heard] = (
                    np.where(reported == NO_TEXT, own[heard], reported) if name in _LASTING else reported
                )
        return heard

    @property
    def is_gpu(self) -> Any:
        """Exporters and hosts have samples of their own, and none of these."""
        return ~np.isnan([self.measures[name] for name in _OF_GPUS]).all(axis=0)

    def is_present(self, now_ms: int, absent_s: float) -> Any:
        """The GPUs that were heard in the last so many seconds."""
        return self.is_gpu & (now_ms - self.seen_ms < absent_s * 1000)

    def count_companions(self, now_ms: int, absent_s: float) -> None:
        """Count the GPUs of each host for those that were heard in this step."""
        hosts = self.codes["hostname"] - NO_TEXT
        counted = np.bincount(hosts, weights=self.is_present(now_ms, absent_s)).astype(np.int64)
        heard = self.heard & self.is_gpu
        self.companions[heard] = counted[hosts[heard]]

    def _grow(self, size: int) -> None:
        more = size - len(self.seen_ms)
        if not more:
            return

        def grown(array: Any, fill: float) -> Any:
            new = np.full((more, *array.shape[1:]), fill, array.dtype)
            return np.concatenate([array, new])

        self.seen_ms, self.hardware_ms = grown(self.seen_ms, 0), grown(self.hardware_ms, 0)
        self.heard, self.held = grown(self.heard, False), grown(self.held, 0)
        self.companions = grown(self.companions, 0)
        self.codes = {name: grown(own, NO_TEXT) for name, own in self.codes.items()}
        self.measures = {name: grown(own, np.nan) for name, own in self.measures.items()}
        self.flags = {name: grown(own, _FLAGS[name]) for name, own in self.flags.items()}

    def _forget_texts(self) -> None:
        """Forget the texts that no GPU has any more, such as names of pods, once they are the most."""
        is_used = np.zeros(len(self._texts), dtype=bool)
        for own in self.codes.values():
            is_used[own[own != NO_TEXT]] = True
        if 2 * np.count_nonzero(is_used) >= len(self._texts):
            return
        number_of = np.cumsum(is_used) - 1
        for own in self.codes.values():
            has_text = own != NO_TEXT
            own[has_text] = number_of[own[has_text]]
        self._texts = [self._texts[code] for code in np.flatnonzero(is_used)]
        self._code_of = {text: code for code, text in enumerate(self._texts)}

    def to_table(self) -> Any:
        """The state to store."""
        self._forget_texts()
        texts = pa.array(self._texts, pa.string())
        about = {
            name: pa.DictionaryArray.from_arrays(pa.array(own.astype(np.int32), mask=own == NO_TEXT), texts)
            for name, own in self.codes.items()
        }
        columns = {
            "gpu_id": self._ids,
            "seen_ms": self.seen_ms,
            "hardware_ms": self.hardware_ms,
            "companions": self.companions,
            **about,
            **self.measures,
            **self.flags,
            "held": lists(self.held),
        }
        return pa.table(columns, metadata=rules_metadata(self.rules))

    @classmethod
    def from_table(cls, table: Any, rules: tuple[str, ...]) -> Peers:
        peers = cls(rules)
        peers._ids = table["gpu_id"].combine_chunks()
        peers.gpu_ids = peers._ids.to_pylist()
        peers.number_of = {gpu_id: number for number, gpu_id in enumerate(peers.gpu_ids)}
        nothing = pa.chunked_array([pa.nulls(len(table), pa.string()).dictionary_encode()])
        peers.codes = {
            name: peers._encoded(table[name] if name in table.column_names else nothing) for name in ABOUT
        }
        peers.seen_ms, peers.hardware_ms = (
            table[name].to_numpy().copy() for name in ("seen_ms", "hardware_ms")
        )
        peers.measures = {name: table[name].to_numpy().copy() for name in _MEASURES}
        peers.flags = {name: table[name].to_numpy().copy() for name in _FLAGS}
        peers.companions = np.zeros(len(peers.gpu_ids), np.int64)
        if "companions" in table.column_names:  # the state of an older version has none
            peers.companions = table["companions"].to_numpy().copy()
        peers.heard = np.zeros(len(peers.gpu_ids), dtype=bool)
        peers.held = held_of(table, rules)
        return peers
