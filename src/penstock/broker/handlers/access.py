"""ACLs and SCRAM credentials: their admin APIs."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from functools import partial
from typing import Any, Final

from penstock.broker.base.context import Context
from penstock.broker.node.controller import Controller
from penstock.metadata.access import create_acls, delete_acls, find_acls
from penstock.metadata.image import ClusterImage
from penstock.metadata.levels import ACCESS, refused
from penstock.metadata.scram import alter_credentials, describe_credentials, divided_by_user
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.steps import Steps, slices
from penstock.net.deferred import Deferred
from penstock.ports import Rng
from penstock.security.acls import Acl, AclFilter, check_filter
from penstock.wire.apis.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
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

__all__ = ["AccessHandlers"]

#: bindings of a response that are built in one step
_STEP: Final = 200
#: users whose credentials are altered together
_USERS_AT_ONCE: Final = 100
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
        if (off := refused(self._image.features, ACCESS)) is not None:
            results = [off] * len(acls)
        elif self._has_authorizer:
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
            found = await context.until_done(find_acls(self._image, filters))
            results = await self._controller.change(lambda: delete_acls(self._image, found))
        return await context.until_done(_deletions(results))

    def describe_acls(self, context: Context, request: DescribeAclsRequest) -> Any:
        wanted = _filter(request)
        if not self._has_authorizer:
            # Not raised: a constant would keep the frames of all requests in its traceback.
            return DescribeAclsResponse(error_code=_DISABLED.code, error_message=str(_DISABLED))
        try:
            check_filter(wanted)
        except ApiError as e:
            return DescribeAclsResponse(error_code=e.code, error_message=str(e))
        return context.in_turns(self._described(wanted))

    def _described(self, wanted: AclFilter) -> Generator[None, None, DescribeAclsResponse]:
        resources: dict[tuple[int, str, int], DescribeAclsResource] = {}
        for number, (_, acl) in enumerate((yield from self._image.acls.search(wanted))):
            if number % _STEP == 0:
                yield
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
    ) -> DescribeUserScramCredentialsResponse | Deferred[DescribeUserScramCredentialsResponse]:
        return context.in_turns(describe_credentials(self._image, request))

    async def alter_user_scram_credentials(
        self, context: Context, request: AlterUserScramCredentialsRequest
    ) -> AlterUserScramCredentialsResponse:
        if (off := refused(self._image.features, ACCESS)) is not None:
            names = dict.fromkeys(
                [*(each.name for each in request.deletions), *(each.name for each in request.upsertions)]
            )
            return AlterUserScramCredentialsResponse(
                results=[
                    AlterUserScramCredentialsResult(user=name, error_code=off.code, error_message=str(off))
                    for name in names
                ]
            )
        if len(request.deletions) + len(request.upsertions) <= _USERS_AT_ONCE:
            return await self._controller.change(lambda: alter_credentials(self._image, request))
        response = AlterUserScramCredentialsResponse()
        for part in await context.until_done(divided_by_user(request, _USERS_AT_ONCE)):
            await context.turn()
            altered = await self._controller.change(partial(alter_credentials, self._image, part))
            response.results += altered.results
        return response


def _deletions(results: Sequence[list[Acl] | ApiError]) -> Steps[DeleteAclsResponse]:
    response = DeleteAclsResponse()
    for found in results:
        if isinstance(found, ApiError):
            result = DeleteAclsFilterResult(error_code=found.code, error_message=str(found))
        else:
            result = DeleteAclsFilterResult()
            for some in slices(found):
                result.matching_acls += map(_deleted, some)
                yield
        response.filter_results.append(result)
    return response


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
