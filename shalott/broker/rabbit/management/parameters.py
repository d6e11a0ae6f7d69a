"""/api/parameters, /api/global-parameters and /api/vhost-limits: runtime parameters.

What a component is and what it may say is RabbitMQ's without plugins: the limits of vhosts, and
operator policies, which are listed among them.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from shalott.broker.base.http_api import (
    ApiError,
    Request,
    Response,
    bad_request,
    decode_body,
    json_response,
    not_found,
)
from shalott.broker.rabbit.management.backend import (
    ManagementBackend,
    Route,
    require_vhost,
    running_queues,
)
from shalott.broker.rabbit.management.bodies import Number, number
from shalott.broker.rabbit.management.policies import view_policy
from shalott.broker.rabbit.metadata import parameters, vhosts
from shalott.broker.rabbit.metadata.policies import OPERATOR_POLICY, policy_rows
from shalott.broker.rabbit.metadata.records import ParameterRow, PolicyRow


class ParameterBody(msgspec.Struct):
    value: object


def view_parameter(row: ParameterRow) -> dict[str, object]:
    shown: dict[str, object] = {"value": row.value, "name": row.name}
    return {**shown, "vhost": row.vhost, "component": row.component} if row.component else shown


def _of_policy(row: PolicyRow) -> ParameterRow:
    shown = view_policy(row)
    value = {key: shown[key] for key in ("pattern", "definition", "priority", "apply-to")}
    return ParameterRow(component=OPERATOR_POLICY, vhost=row.vhost, name=row.name, value=value)


def parameter_rows(backend: ManagementBackend) -> list[ParameterRow]:
    """Of vhosts."""
    own = [row for row in parameters.parameter_rows(backend.metadata) if row.component]
    return own + [_of_policy(row) for row in policy_rows(backend.metadata, OPERATOR_POLICY)]


async def list_parameters(
    backend: ManagementBackend, request: Request, given: Mapping[str, str]
) -> Response:
    if "vhost" in given:
        require_vhost(backend, given["vhost"])
    rows = [
        row
        for row in parameter_rows(backend)
        if given.get("component") in (None, row.component)
        and given.get("vhost") in (None, row.vhost)
    ]
    return json_response([view_parameter(row) for row in rows])


async def show_parameter(
    backend: ManagementBackend, request: Request, given: Mapping[str, str]
) -> Response:
    for row in parameter_rows(backend):
        if (row.component, row.vhost, row.name) == _address(given):
            return json_response(view_parameter(row))
    raise not_found()


def _address(given: Mapping[str, str]) -> tuple[str, str, str]:
    return given["component"], given["vhost"], given["name"]


def problem_of(component: str, name: str, value: object) -> str | None:
    """In RabbitMQ's words."""
    if component in ("policy", OPERATOR_POLICY):
        return "policies may not be set using this method"
    if component != parameters.VHOST_LIMITS:
        return f"component {component} not found"
    if name != parameters.LIMITS:
        return f"name not recognised: {name}"
    if not isinstance(value, dict):
        return f"{name} should be an object"
    return parameters.problem_of_limits(value, parameters.VHOST_LIMIT_NAMES, name)


async def put_parameter(
    backend: ManagementBackend, request: Request, given: Mapping[str, str]
) -> Response:
    """201 if it is new, 204 if it is replaced."""
    running_queues(backend)
    component, vhost, name = _address(given)
    _require_known(backend, vhost)
    value = decode_body(request, ParameterBody).value
    problem = problem_of(component, name, value)
    if problem is not None:
        raise bad_request(f"Validation failed\n\n{problem}\n")
    row = ParameterRow(component=component, vhost=vhost, name=name, value=value)
    is_new = await backend.metadata.transact(lambda tx: parameters.put(tx, row), once=True)
    return Response(201 if is_new else 204)


def _require_known(backend: ManagementBackend, vhost: str) -> None:
    if not vhosts.exists(backend.metadata, vhost):
        raise ApiError(404, "not_found", "vhost_not_found")


async def delete_parameter(
    backend: ManagementBackend, request: Request, given: Mapping[str, str]
) -> Response:
    running_queues(backend)
    component, vhost, name = _address(given)
    await _clear(backend, component, name, vhost)
    return Response(204)


async def _clear(backend: ManagementBackend, component: str, name: str, vhost: str = "") -> None:
    """Raises ApiError(404)."""
    if parameters.find(backend.metadata, component, name, vhost) is None:
        raise not_found()
    await backend.metadata.transact(
        lambda tx: parameters.clear(tx, component, name, vhost), confirmed=True, once=True
    )


# -- of the cluster --------------------------------------------------------------------------------


def global_rows(backend: ManagementBackend) -> list[ParameterRow]:
    return [row for row in parameters.parameter_rows(backend.metadata) if not row.component]


async def list_global(
    backend: ManagementBackend, request: Request, given: Mapping[str, str]
) -> Response:
    return json_response([view_parameter(row) for row in global_rows(backend)])


async def show_global(
    backend: ManagementBackend, request: Request, given: Mapping[str, str]
) -> Response:
    row = parameters.find(backend.metadata, "", given["name"])
    if row is None:
        raise not_found()
    return json_response(view_parameter(row))


async def put_global(
    backend: ManagementBackend, request: Request, given: Mapping[str, str]
) -> Response:
    running_queues(backend)
    row = ParameterRow(name=given["name"], value=decode_body(request, ParameterBody).value)
    is_new = await backend.metadata.transact(lambda tx: parameters.put(tx, row), once=True)
    return Response(201 if is_new else 204)


async def delete_global(
    backend: ManagementBackend, request: Request, given: Mapping[str, str]
) -> Response:
    running_queues(backend)
    await _clear(backend, "", given["name"])
    return Response(204)


# -- the cluster's name ----------------------------------------------------------------------------


class NameBody(msgspec.Struct):
    name: str


def cluster_name(backend: ManagementBackend) -> str:
    row = parameters.find(backend.metadata, "", parameters.CLUSTER_NAME)
    return row.value if row is not None and isinstance(row.value, str) else "shalott"


async def show_cluster_name(
    backend: ManagementBackend, request: Request, given: Mapping[str, str]
) -> Response:
    return json_response({"name": cluster_name(backend)})


async def put_cluster_name(
    backend: ManagementBackend, request: Request, given: Mapping[str, str]
) -> Response:
    running_queues(backend)
    name = decode_body(request, NameBody).name
    row = ParameterRow(name=parameters.CLUSTER_NAME, value=name)
    await backend.metadata.transact(lambda tx: parameters.put(tx, row), once=True)
    return Response(204)


# -- limits of vhosts ------------------------------------------------------------------------------


class LimitBody(msgspec.Struct):
    value: Number


async def list_limits(
    backend: ManagementBackend, request: Request, given: Mapping[str, str]
) -> Response:
    if "vhost" in given:
        require_vhost(backend, given["vhost"])
    names = [given["vhost"]] if "vhost" in given else vhosts.names(backend.metadata)
    found = {name: parameters.vhost_limits(backend.metadata, name) for name in names}
    return json_response([{"vhost": n, "value": limits} for n, limits in found.items() if limits])


async def put_limit(
    backend: ManagementBackend, request: Request, given: Mapping[str, str]
) -> Response:
    """-1: no limit."""
    running_queues(backend)
    vhost, name = given["vhost"], given["name"]
    _require_known(backend, vhost)
    value = number(decode_body(request, LimitBody).value)
    problem = parameters.problem_of_limits({name: value}, parameters.VHOST_LIMIT_NAMES, "limits")
    if problem is not None:
        raise bad_request(f"Validation failed\n\n{problem}\n")
    await backend.metadata.transact(
        lambda tx: parameters.set_vhost_limit(tx, vhost, name, value), once=True
    )
    return Response(204)


async def delete_limit(
    backend: ManagementBackend, request: Request, given: Mapping[str, str]
) -> Response:
    running_queues(backend)
    vhost, name = given["vhost"], given["name"]
    require_vhost(backend, vhost)
    await backend.metadata.transact(
        lambda tx: parameters.set_vhost_limit(tx, vhost, name, None), confirmed=True, once=True
    )
    return Response(204)


ROUTES: tuple[Route, ...] = (
    Route("GET", "/api/parameters", list_parameters),
    Route("GET", "/api/parameters/:component", list_parameters),
    Route("GET", "/api/parameters/:component/:vhost", list_parameters),
    Route("GET", "/api/parameters/:component/:vhost/:name", show_parameter),
    Route("PUT", "/api/parameters/:component/:vhost/:name", put_parameter),
    Route("DELETE", "/api/parameters/:component/:vhost/:name", delete_parameter),
    Route("GET", "/api/global-parameters", list_global),
    Route("GET", "/api/global-parameters/:name", show_global),
    Route("PUT", "/api/global-parameters/:name", put_global),
    Route("DELETE", "/api/global-parameters/:name", delete_global),
    Route("GET", "/api/cluster-name", show_cluster_name),
    Route("PUT", "/api/cluster-name", put_cluster_name),
    Route("GET", "/api/vhost-limits", list_limits),
    Route("GET", "/api/vhost-limits/:vhost", list_limits),
    Route("PUT", "/api/vhost-limits/:vhost/:name", put_limit),
    Route("DELETE", "/api/vhost-limits/:vhost/:name", delete_limit),
)
