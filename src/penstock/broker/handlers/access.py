"""ACLs and SCRAM credentials: their admin APIs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from penstock.broker.base.context import Context
from penstock.broker.node.controller import Controller
from penstock.metadata.access import create_acls, delete_acls
from penstock.metadata.image import ClusterImage
from penstock.metadata.scram import alter_credentials, describe_credentials
from penstock.model.errors import ApiError, ErrorCode
from penstock.ports import Rng
from penstock.security.acls import Acl, AclFilter, check_filter
from penstock.wire.apis.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from penstock.wire.apis.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from penstock.wire.apis.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from penstock.wire.apis.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from penstock.wire.apis.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from penstock.wire.schema import Struct

__all__ = ["AccessHandlers"]

_DISABLED: Final = ApiError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")


class AccessHandlers:
    """CreateAcls, DescribeAcls, DeleteAcls, DescribeUserScramCredentials, AlterUserScramCredentials."""

    def __init__(self, image: ClusterImage, controller: Controller, rng: Rng, has_authorizer: bool) -> None:
        self._image = image
        self._controller = controller
        self._rng = rng
        self._has_authorizer = has_authorizer

    async def create_acls(self, context: Context, request: CreateAclsRequest) -> CreateAclsResponse:
        acls = [
            Acl(
                c.resource_type,
                c.resource_name,
                c.resource_pattern_type,
                c.principal,
                c.host,
                c.operation,
                c.permission_type,
            )
            for c in request.creations
        ]
        results: Sequence[ApiError | None] = [_DISABLED] * len(acls)
        if self._has_authorizer:
            results = await self._controller.change(
                lambda: create_acls(self._image, acls, lambda: self._rng.token(16))
            )
        return CreateAclsResponse(
            results=[
                AclCreationResult()
                if error is None
                else AclCreationResult(error_code=error.code, error_message=str(error))
                for error in results
            ]
        )

    async def delete_acls(self, context: Context, request: DeleteAclsRequest) -> DeleteAclsResponse:
        filters = [_filter(wanted) for wanted in request.filters]
        results: Sequence[list[Acl] | ApiError] = [_DISABLED] * len(filters)
        if self._has_authorizer:
            results = await self._controller.change(lambda: delete_acls(self._image, filters))
        return DeleteAclsResponse(
            filter_results=[
                DeleteAclsFilterResult(error_code=found.code, error_message=str(found))
                if isinstance(found, ApiError)
                else DeleteAclsFilterResult(matching_acls=[_deleted(acl) for acl in found])
                for found in results
            ]
        )

    def describe_acls(self, context: Context, request: DescribeAclsRequest) -> DescribeAclsResponse:
        wanted = _filter(request)
        try:
            if not self._has_authorizer:
                raise _DISABLED
            check_filter(wanted)
        except ApiError as e:
            return DescribeAclsResponse(error_code=e.code, error_message=str(e))
        resources: dict[tuple[int, str, int], DescribeAclsResource] = {}
        for _, acl in self._image.acls.matching(wanted):
            key = acl[:3]
            if key not in resources:
                resources[key] = DescribeAclsResource(
                    resource_type=acl.resource_type, resource_name=acl.name, pattern_type=acl.pattern
                )
            resources[key].acls.append(
                AclDescription(
                    principal=acl.principal,
                    host=acl.host,
                    operation=acl.operation,
                    permission_type=acl.permission,
                )
            )
        return DescribeAclsResponse(resources=list(resources.values()))

    def describe_user_scram_credentials(
        self, context: Context, request: DescribeUserScramCredentialsRequest
    ) -> DescribeUserScramCredentialsResponse:
        return describe_credentials(self._image, request)

    async def alter_user_scram_credentials(
        self, context: Context, request: AlterUserScramCredentialsRequest
    ) -> AlterUserScramCredentialsResponse:
        def decide() -> tuple[Sequence[Struct], AlterUserScramCredentialsResponse]:
            return alter_credentials(self._image, request)

        return await self._controller.change(decide)


def _filter(request: Any) -> AclFilter:
    return AclFilter(
        request.resource_type_filter,
        request.resource_name_filter,
        request.pattern_type_filter,
        request.principal_filter,
        request.host_filter,
        request.operation,
        request.permission_type,
    )


def _deleted(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        resource_type=acl.resource_type,
        resource_name=acl.name,
        pattern_type=acl.pattern,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
