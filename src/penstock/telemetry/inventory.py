"""What the operator says of hosts: how many GPUs each should have, and its rack. No I/O.

A host has what the first entry says that names it: entries are names, or patterns such as `dgx-0*`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import translate
from typing import Any, Final

import pyarrow as pa

from penstock.telemetry.thresholds import Host

__all__ = ["NO_HOSTS", "RACK", "Inventory"]

#: the column that `with_racks` adds
RACK: Final = "rack"
_NOTHING: Final = Host()


class Inventory:
    """The part `hosts` of the file of thresholds."""

    def __init__(self, hosts: Mapping[str, Host]) -> None:
        self._hosts = [(re.compile(translate(pattern)), host) for pattern, host in hosts.items()]
        self._known: dict[str | None, Host] = {None: _NOTHING}
        #: entries that name one host, which is known even if it was never heard
        self.named = {name: host for name, host in hosts.items() if not re.search(r"[*?\[]", name)}

    @property
    def has_racks(self) -> bool:
        return any(host.rack is not None for _, host in self._hosts)

    def of(self, hostname: str | None) -> Host:
        """What is known of a host; nothing of one that no entry names."""
        known = self._known.get(hostname)
        if known is None:
            assert hostname is not None
            found = (host for pattern, host in self._hosts if pattern.fullmatch(hostname))
            known = self._known[hostname] = next(found, _NOTHING)
        return known

    def with_racks(self, rows: Any) -> Any:
        """Rows that have a column of hosts, with a column of their racks."""
        hosts = rows["hostname"].combine_chunks().dictionary_encode()
        racks = pa.array([self.of(name).rack for name in hosts.dictionary.to_pylist()], pa.string())
        return rows.append_column(RACK, racks.take(hosts.indices))


#: nothing is said of any host
NO_HOSTS: Final = Inventory({})
