"""/api/definitions: all that was declared, exported and imported as RabbitMQ has it
(rabbit_definitions.erl, rabbit_mgmt_wm_definitions.erl).

What is transient, exclusive or the broker's own is left out as there; what is imported is added to
what there is, and replaces users, vhosts' descriptions, permissions, parameters and policies of the
same name.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from shalott.broker.base.http_api import (
    ApiError,
    HandlerOf,
    Request,
    Response,
    bad_request,
    decode_body,
    json_response,
)
from shalott.broker.rabbit.amqp.errors import NOT_FOUND, AmqpError
from shalott.broker.rabbit.config import RABBITMQ_VERSION
from shalott.broker.rabbit.management import parameters, policies, queues, topology, users, vhosts
from shalott.broker.rabbit.management.backend import (
    ManagementBackend,
    Route,
    queue_rows,
    require_vhost,
    running_queues,
)
from shalott.broker.rabbit.metadata import vhosts as vhost_rows
from shalott.broker.rabbit.metadata.permissions import topic_rows
from shalott.broker.rabbit.metadata.policies import OPERATOR_POLICY, POLICY, policy_rows
from shalott.broker.rabbit.metadata.records import VhostRow

log = logging.getLogger("shalott.broker.management")

Rows = list[dict[str, object]]


def export(backend: ManagementBackend, vhost: str | None = None) -> dict[str, object]:
    """Of one vhost: what is in it, and not where."""
    told: dict[str, object] = {
        "rabbit_version": RABBITMQ_VERSION,
        "rabbitmq_version": RABBITMQ_VERSION,
        "product_name": "Shalott",
        "product_version": RABBITMQ_VERSION,
    }
    if vhost is None:
        names = vhost_rows.names(backend.metadata)
        rows = [vhost_rows.find(backend.metadata, name) for name in names]
        told |= {
            "users": [users.view_user(row) for row in users.users_of(backend).all()],
            "vhosts": [_of_vhost(row) for row in rows if row is not None],
            "permissions": [users.view_permission(r) for r in users.permission_rows(backend)],
            "topic_permissions": [
                users.view_topic_permission(row) for row in topic_rows(backend.metadata)
            ],
            "parameters": [
                parameters.view_parameter(row) for row in parameters.parameter_rows(backend)
            ],
            "global_parameters": [
                parameters.view_parameter(row) for row in parameters.global_rows(backend)
            ],
        }
        return {**told, **_contents(backend)}
    told["parameters"] = [
        parameters.view_parameter(row)
        for row in parameters.parameter_rows(backend)
        if row.vhost == vhost
    ]
    contents = _contents(backend)
    for kind, listed in contents.items():
        told[kind] = [_without(each, "vhost") for each in listed if each["vhost"] == vhost]
    return told


def _of_vhost(row: VhostRow) -> dict[str, object]:
    metadata = {"description": row.description, "tags": list(row.tags)}
    return {"name": row.name, "metadata": metadata}


def _without(shown: Mapping[str, object], key: str) -> dict[str, object]:
    return {name: value for name, value in shown.items() if name != key}


def _contents(backend: ManagementBackend) -> dict[str, Rows]:
    return {
        "policies": [policies.view_policy(row) for row in policy_rows(backend.metadata, POLICY)],
        "queues": [
            {
                "name": row.name,
                "vhost": row.vhost,
                "durable": row.durable,
                "auto_delete": row.auto_delete,
                "arguments": row.arguments,
            }
            for row in queue_rows(backend)
            if row.exclusive_owner is None
        ],
        "exchanges": [
            _without(topology.view_exchange(backend, row), "policy")
            for row in topology.exchange_rows(backend)
            if row.name and not row.name.startswith("amq.")
        ],
        "bindings": [
            _without(topology.view_binding(row), "properties_key")
            for row in topology.binding_rows(backend)
            if row.source
        ],
    }


async def show_definitions(
    backend: ManagementBackend, request: Request, given: Mapping[str, str]
) -> Response:
    if "vhost" in given:
        require_vhost(backend, given["vhost"])
    return json_response(export(backend, given.get("vhost")))


# -- importing -------------------------------------------------------------------------------------

# Each kind, in RabbitMQ's order, as the requests that make one: what is refused there is refused
# here, in the same words. A queue or an exchange that is there stays as it is, and a binding of
# what is not there is left out, as in RabbitMQ.


@dataclass(frozen=True, slots=True)
class Kind:
    """``names``: the parts of the path, and the key of the definition that each one is."""

    key: str
    handler: HandlerOf[ManagementBackend]
    names: Mapping[str, str]


async def _put_vhost(
    backend: ManagementBackend, request: Request, names: Mapping[str, str]
) -> Response:
    """What is said of it stands in ``metadata``."""
    told = decode_body(request, dict[str, object])
    metadata = told.get("metadata")
    body = msgspec.json.encode({**told, **(metadata if isinstance(metadata, dict) else {})})
    return await vhosts.add_vhost(backend, dataclasses.replace(request, body=body), names)


async def _put_parameter(
    backend: ManagementBackend, request: Request, names: Mapping[str, str]
) -> Response:
    """Operator policies are among them."""
    if names["component"] != OPERATOR_POLICY:
        return await parameters.put_parameter(backend, request, names)
    value = decode_body(request, parameters.ParameterBody).value
    asked = dataclasses.replace(request, body=msgspec.json.encode(value))
    return await policies.OPERATORS.put(backend, asked, names)


async def _put_queue(
    backend: ManagementBackend, request: Request, names: Mapping[str, str]
) -> Response:
    require_vhost(backend, names["vhost"])
    there = any((row.vhost, row.name) == _at(names) for row in queue_rows(backend))
    return Response(204) if there else await queues.put_queue(backend, request, names)


async def _put_exchange(
    backend: ManagementBackend, request: Request, names: Mapping[str, str]
) -> Response:
    require_vhost(backend, names["vhost"])
    rows = topology.exchange_rows(backend)
    there = any((row.vhost, row.name) == _at(names) for row in rows)
    return Response(204) if there else await topology.put_exchange(backend, request, names)


def _at(names: Mapping[str, str]) -> tuple[str, str]:
    return names["vhost"], names["name"]


async def _add_binding(
    backend: ManagementBackend, request: Request, names: Mapping[str, str]
) -> Response:
    require_vhost(backend, names["vhost"])
    path = {**names, "kind": names["kind"][:1]}
    try:
        return await topology.add_binding(backend, request, path)
    except AmqpError as error:
        if error.code != NOT_FOUND:
            raise
        log.warning("a binding was not imported: %s", error.text)
        return Response(204)


IN_VHOST: Mapping[str, str] = {"vhost": "vhost", "name": "name"}
BETWEEN: Mapping[str, str] = {
    "source": "source",
    "destination": "destination",
    "kind": "destination_type",
}
KINDS: Sequence[Kind] = (
    Kind("users", users.put_user, {"name": "name"}),
    Kind("vhosts", _put_vhost, {"vhost": "name"}),
    Kind("permissions", users.put_permission, {"vhost": "vhost", "user": "user"}),
    Kind("topic_permissions", users.put_topic_permission, {"vhost": "vhost", "user": "user"}),
    Kind("parameters", _put_parameter, {**IN_VHOST, "component": "component"}),
    Kind("global_parameters", parameters.put_global, {"name": "name"}),
    Kind("policies", policies.OWN.put, IN_VHOST),
    Kind("queues", _put_queue, IN_VHOST),
    Kind("exchanges", _put_exchange, IN_VHOST),
    Kind("bindings", _add_binding, {**BETWEEN, "vhost": "vhost"}),
)


async def import_definitions(
    backend: ManagementBackend, request: Request, given: Mapping[str, str]
) -> Response:
    """204. What came before a thing that is refused is there (400 says which one was)."""
    running_queues(backend)
    vhost = given.get("vhost")
    if vhost is not None:
        require_vhost(backend, vhost)
    told = decode_body(request, dict[str, object])
    for kind in KINDS:
        for each in _listed(told, kind.key):
            await _import(backend, request, kind, {**each, "vhost": vhost} if vhost else each)
    return Response(204)


def _listed(told: Mapping[str, object], key: str) -> Rows:
    """Raises ApiError(400)."""
    try:
        return msgspec.convert(told.get(key, []), type=Rows)
    except msgspec.ValidationError as error:
        raise bad_request(f"{key}: {error}") from error


async def _import(
    backend: ManagementBackend, request: Request, kind: Kind, each: Mapping[str, object]
) -> None:
    names: dict[str, str] = {}
    for part, key in kind.names.items():
        value = each.get(key)
        if not isinstance(value, str):
            raise bad_request(f"{kind.key}: {key} is missing, or no string")
        names[part] = value
    asked = Request("PUT", (), body=msgspec.json.encode(each), user=request.user)
    try:
        await kind.handler(backend, asked, names)
    except ApiError as error:
        if error.status >= 500:
            raise
        raise bad_request(f"{kind.key} {names}: {error.reason}") from error
    except AmqpError as error:
        raise bad_request(f"{kind.key} {names}: {error.text}") from error


ROUTES: tuple[Route, ...] = (
    Route("GET", "/api/definitions", show_definitions),
    Route("POST", "/api/definitions", import_definitions),
    Route("PUT", "/api/definitions", import_definitions),
    Route("GET", "/api/all-configuration", show_definitions),
    Route("GET", "/api/definitions/:vhost", show_definitions),
    Route("POST", "/api/definitions/:vhost", import_definitions),
    Route("PUT", "/api/definitions/:vhost", import_definitions),
)
