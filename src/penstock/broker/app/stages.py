"""The stages of a broker before requests are served, in the order in which they are composed.

Each is a frozen record, made by a function that takes what it needs of the stages before it. A part that has
to call a later stage gets the `UpwardPort`.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.broker.app.cluster import Cluster
from penstock.broker.app.coordinators import Coordinators
from penstock.broker.app.healing import Healing
from penstock.broker.app.listening import Listening
from penstock.broker.app.replication import Replication
from penstock.broker.app.storage import Storage
from penstock.model.config import BrokerConfig
from penstock.ports import World

__all__ = ["Stages"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """All of a broker but what serves its requests."""

    config: BrokerConfig
    world: World
    listening: Listening
    storage: Storage
    cluster: Cluster
    healing: Healing
    coordinators: Coordinators
    replication: Replication
