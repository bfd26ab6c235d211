"""The ledger of a group shard: the groups of one partition of `__consumer_offsets`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.coordination.ledger import Ledger
from penstock.groups.group import Group
from penstock.groups.records import encode_record
from penstock.groups.settings import GroupSettings
from penstock.metadata.image import ClusterImage
from penstock.model.errors import ApiError, ErrorCode

__all__ = ["Client", "Environment", "GroupLedger"]


class Client:
    """The sender of a request, as groups store and describe it."""

    __slots__ = ("host", "id", "may_describe", "regex_error", "version")

    def __init__(
        self, id: str, host: str, version: int, may_describe: Callable[[str], bool] = lambda topic: True
    ) -> None:
        """`may_describe` returns whether the sender has Describe on a topic."""
        self.id = id
        self.host = host
        #: of the request
        self.version = version
        self.may_describe = may_describe
        #: why the regular expression of the request is invalid; None if it is valid or absent
        self.regex_error: ApiError | None = None


class Environment:
    """Input that all group shards of a broker share: settings, the cluster image, and a source of UUIDs."""

    __slots__ = ("image", "may_expire", "new_uuid", "own_settings", "settings")

    def __init__(
        self,
        settings: GroupSettings,
        image: ClusterImage,
        new_uuid: Callable[[], str],
        may_expire: Callable[[], bool] = lambda: True,
    ) -> None:
        """`may_expire` returns true while the wall clock is trusted. Offsets expire only then."""
        self.settings = settings
        #: of the groups that have configs of their own
        self.own_settings: dict[str, GroupSettings] = {}
        self.image = image
        self.new_uuid = new_uuid
        self.may_expire = may_expire

    def settings_of(self, group_id: str) -> GroupSettings:
        return self.own_settings.get(group_id, self.settings)


class GroupLedger(Ledger):
    """Groups of one partition, and the only way to change them durably."""

    __slots__ = ("env", "groups")

    def __init__(self, env: Environment, apply: Callable[[Any, Any], None]) -> None:
        super().__init__(encode_record, apply)
        self.env = env
        self.groups: dict[str, Group] = {}

    def group(self, group_id: str) -> Group:
        group = self.groups.get(group_id)
        if group is None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group
