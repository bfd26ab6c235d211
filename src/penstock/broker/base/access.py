"""The rights of requests: the authorizer, applied to the context of a request.

A broker without an authorizer has no `Access`, and its handlers run without checks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from penstock.broker.base.audit import Audit
from penstock.broker.base.context import Context
from penstock.metadata.image import ClusterImage
from penstock.model.config import BrokerConfig
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicId
from penstock.security.acls import CLUSTER_NAME, Operation, ResourceType
from penstock.security.authorizer import Authorizer
from penstock.security.principal import Session

__all__ = ["Access", "access_of"]

S = TypeVar("S")
_CLUSTER: Final = ResourceType.CLUSTER
_TOPIC: Final = ResourceType.TOPIC


class Access:
    """Checks the operations of requests. `epoch` is replaced whenever an answer may change."""

    def __init__(self, authorizer: Authorizer, image: ClusterImage, audit: Audit) -> None:
        self._authorizer = authorizer
        self._image = image
        self._audit = audit

    @property
    def epoch(self) -> object:
        return self._image.acls.generation

    def allows(
        self,
        context: Context,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
        quiet: bool = False,
    ) -> bool:
        """Whether a request may do an operation. A denial is audited, unless it only filters a list."""
        allowed = self._authorizer.allows(context.session, operation, resource_type, name)
        if not allowed and not quiet:
            self._audit.denied(context, operation, resource_type, name)
        return allowed

    def allows_on_cluster(self, context: Context, operation: Operation, quiet: bool = False) -> bool:
        return self.allows(context, operation, _CLUSTER, CLUSTER_NAME, quiet)

    def is_super_user(self, context: Context) -> bool:
        return self._authorizer.is_super_user(context.session)

    def is_node(self, session: Session) -> bool:
        """Whether a principal may act as a node of the cluster: it has ClusterAction."""
        return self._authorizer.allows(session, Operation.CLUSTER_ACTION, _CLUSTER, CLUSTER_NAME)

    def denied_trust(self, context: Context) -> None:
        """Audit that a request may not change configs of trust."""
        self._audit.denied(context, Operation.ALTER_CONFIGS, _CLUSTER, CLUSTER_NAME)

    def allows_on_any(self, context: Context, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether a request may do an operation on at least one resource of a type."""
        return self._authorizer.allows_any(context.session, operation, resource_type)

    def operations(self, context: Context, resource_type: ResourceType, name: str) -> int:
        """The bits of the operations that a request may do on a resource."""
        return self._authorizer.operations(context.session, resource_type, name)

    def finder(
        self, context: Context, operation: Operation, find: Callable[[str | TopicId, int], S]
    ) -> Callable[[str | TopicId, int], S | ErrorCode]:
        """`find` for partitions of topics that the request may use; TOPIC_AUTHORIZATION_FAILED for others.

        A topic that is given by name is refused whether it exists or not. Each call decides anew, so a
        request that waits loses access with the ACL.
        """
        topics, allows = self._image.topics_by_id, self._authorizer.allows

        def find_allowed(topic: str | TopicId, index: int) -> S | ErrorCode:
            if isinstance(topic, str):
                name = topic
            else:
                known = topics.get(topic)
                if known is None:
                    return find(topic, index)
                name = known.name
            if allows(context.session, operation, _TOPIC, name):
                return find(topic, index)
            self._audit.denied(context, operation, _TOPIC, name)
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED

        return find_allowed


def access_of(config: BrokerConfig, image: ClusterImage, audit: Audit) -> Access | None:
    """The access control of a broker; None if no authorizer is configured."""
    is_enabled = bool(config.authorizer_class_name)
    super_users = [user.strip() for user in config.super_users.split(";") if user.strip()]
    everyone = config.allow_everyone_if_no_acl_found
    if not is_enabled:
        return None
    return Access(Authorizer(lambda: image.acls, super_users, everyone), image, audit)
