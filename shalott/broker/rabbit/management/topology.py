"""/api/exchanges and /api/bindings. What is declared and bound goes through a channel, as methods
of clients do.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import cast
from urllib.parse import quote, unquote

import msgspec
from pamqp import commands
from pamqp.common import FieldTable

from shalott.broker.base.http_api import (
    Request,
    Response,
    bad_request,
    decode_body,
    is_true,
    json_response,
    not_found,
)
from shalott.broker.rabbit.amqp.exchanges import EXCHANGE_TYPES, predeclared_exchanges
from shalott.broker.rabbit.management.backend import (
    ManagementBackend,
    Route,
    queue_rows,
    require_vhost,
)
from shalott.broker.rabbit.management.bodies import Flag, flag, short
from shalott.broker.rabbit.management.direct_channel import open_channel
from shalott.broker.rabbit.management.queues import find_row
from shalott.broker.rabbit.metadata import vhosts
from shalott.broker.rabbit.metadata.policies import InForce, in_force
from shalott.broker.rabbit.metadata.records import BindingRow, ExchangeRow, exchange_key


def exchange_rows(backend: ManagementBackend) -> list[ExchangeRow]:
    """The predeclared ones, then the declared, by key."""
    rows = {
        exchange_key(row.vhost, row.name): row
        for vhost in vhosts.names(backend.metadata)
        for row in predeclared_exchanges(vhost)
    }
    for key, row in backend.metadata.rows("exchange"):
        if isinstance(row, ExchangeRow):
            rows[key] = row
    return [row for _, row in sorted(rows.items())]


def view_exchange(backend: ManagementBackend, row: ExchangeRow) -> dict[str, object]:
    # The exchange without a name can't be configured.
    policies = (
        in_force(backend.metadata, row.vhost, row.name, "exchanges") if row.name else InForce()
    )
    return {
        "name": row.name,
        "vhost": row.vhost,
        "type": row.type,
        "durable": row.durable,
        "auto_delete": row.auto_delete,
        "internal": row.internal,
        "arguments": row.arguments,
        "policy": policies.policy,
    }


class ExchangeBody(msgspec.Struct, kw_only=True):
    """What PUT takes. Unknown keys are ignored, as RabbitMQ does."""

    type: str = "direct"
    durable: Flag = False
    auto_delete: Flag = False
    internal: Flag = False
    arguments: dict[str, object] = {}


async def put_exchange(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    """201 if it is new, 204 if it existed just so, 400 if it existed otherwise."""
    vhost, name = parameters["vhost"], parameters["name"]
    require_vhost(backend, vhost)
    body = decode_body(request, ExchangeBody)
    if body.type not in EXCHANGE_TYPES:
        raise bad_request(f"invalid exchange type '{body.type}'")
    is_new = all((row.vhost, row.name) != (vhost, name) for row in exchange_rows(backend))
    method = commands.Exchange.Declare(
        exchange_type=body.type,
        durable=flag(body.durable),
        auto_delete=flag(body.auto_delete),
        internal=flag(body.internal),
        arguments=cast(FieldTable, body.arguments),
    )
    method.exchange = short(name)
    async with open_channel(backend, request, vhost) as channel:
        await channel.ask(method)
    return Response(201 if is_new else 204)


async def delete_exchange(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    """With if-unused in the query 400 if it is not."""
    row = find_exchange(backend, parameters)
    method = commands.Exchange.Delete(if_unused=is_true(request, "if-unused"))
    method.exchange = row.name
    async with open_channel(backend, request, row.vhost) as channel:
        await channel.ask(method)
    return Response(204)


async def list_exchanges(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    vhost = parameters.get("vhost")
    if vhost is not None:
        require_vhost(backend, vhost)
    rows = exchange_rows(backend)
    return json_response(
        [view_exchange(backend, row) for row in rows if vhost in (None, row.vhost)]
    )


async def show_exchange(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    return json_response(view_exchange(backend, find_exchange(backend, parameters)))


def find_exchange(backend: ManagementBackend, parameters: Mapping[str, str]) -> ExchangeRow:
    """The default exchange has no name; RabbitMQ calls it amq.default here. Raises
    ApiError(404)."""
    name = "" if parameters["name"] == "amq.default" else parameters["name"]
    for row in exchange_rows(backend):
        if (row.vhost, row.name) == (parameters["vhost"], name):
            return row
    raise not_found()


def binding_rows(backend: ManagementBackend) -> list[BindingRow]:
    """Each queue is bound to the default exchange by its name; then the declared bindings."""
    implied = [
        BindingRow(vhost=row.vhost, source="", destination=row.name, routing_key=row.name)
        for row in queue_rows(backend)
    ]
    declared = [row for _, row in backend.metadata.rows("binding") if isinstance(row, BindingRow)]
    return implied + declared


def view_binding(row: BindingRow) -> dict[str, object]:
    return {
        "source": row.source,
        "vhost": row.vhost,
        "destination": row.destination,
        "destination_type": "exchange" if row.to_exchange else "queue",
        "routing_key": row.routing_key,
        "arguments": row.arguments,
        "properties_key": properties_key(row),
    }


def properties_key(row: BindingRow) -> str:
    """What tells two bindings of one pair apart. With arguments ours is not RabbitMQ's, which
    hashes Erlang terms."""
    key = quote(row.routing_key, safe="")
    if not row.arguments:
        return key or "~"
    arguments = msgspec.json.encode(row.arguments, order="deterministic")
    return f"{key}~{zlib.crc32(arguments):08x}"


async def list_bindings(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    vhost = parameters.get("vhost")
    if vhost is not None:
        require_vhost(backend, vhost)
    rows = binding_rows(backend)
    return json_response([view_binding(row) for row in rows if vhost in (None, row.vhost)])


async def list_bindings_of_queue(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    vhost, name = parameters["vhost"], parameters["name"]
    if all((row.vhost, row.name) != (vhost, name) for row in queue_rows(backend)):
        raise not_found()
    rows = [row for row in binding_rows(backend) if not row.to_exchange]
    return json_response(
        [view_binding(row) for row in rows if (row.vhost, row.destination) == (vhost, name)]
    )


async def list_bindings_of_exchange(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    """Those from it or to it: the path's end is source or destination."""
    exchange = find_exchange(backend, parameters)
    if parameters["end"] not in ("source", "destination"):
        raise not_found()
    is_source = parameters["end"] == "source"
    rows = [row for row in binding_rows(backend) if row.vhost == exchange.vhost]
    return json_response(
        [
            view_binding(row)
            for row in rows
            if (is_source and row.source == exchange.name)
            or (not is_source and row.to_exchange and row.destination == exchange.name)
        ]
    )


# -- bindings of one exchange and one queue, or another exchange -----------------------------------


class BindingBody(msgspec.Struct, kw_only=True):
    routing_key: str = ""
    arguments: dict[str, object] = {}


def between(backend: ManagementBackend, parameters: Mapping[str, str]) -> list[BindingRow]:
    """Raises ApiError(404) if one end is not there."""
    vhost, kind = parameters["vhost"], parameters["kind"]
    source = find_exchange(backend, {"vhost": vhost, "name": parameters["source"]})
    target = {"vhost": vhost, "name": parameters["destination"]}
    if kind == "e":
        destination = find_exchange(backend, target).name
    elif kind == "q":
        destination = find_row(backend, target).name
    else:
        raise not_found()
    wanted = vhost, source.name, destination, kind == "e"
    return [
        row
        for row in binding_rows(backend)
        if (row.vhost, row.source, row.destination, row.to_exchange) == wanted
    ]


async def list_between(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    return json_response([view_binding(row) for row in between(backend, parameters)])


async def add_binding(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    """201 and where it is; 404 if one end is not there."""
    require_vhost(backend, parameters["vhost"])
    body = decode_body(request, BindingBody)
    row = BindingRow(
        vhost=parameters["vhost"],
        source="" if parameters["source"] == "amq.default" else parameters["source"],
        destination=parameters["destination"],
        to_exchange=_is_to_exchange(parameters),
        routing_key=short(body.routing_key),
        arguments=body.arguments,
    )
    async with open_channel(backend, request, row.vhost) as channel:
        await channel.ask(bind_method(row))
    ends = (parameters["destination"], properties_key(row))
    place = "/".join(quote(each, safe="") for each in ends)
    return Response(201, headers={"Location": place})


def _is_to_exchange(parameters: Mapping[str, str]) -> bool:
    if parameters["kind"] not in ("e", "q"):
        raise not_found()
    return parameters["kind"] == "e"


def bind_method(row: BindingRow) -> commands.Exchange.Bind | commands.Queue.Bind:
    if row.to_exchange:
        bind = commands.Exchange.Bind(routing_key="", arguments=cast(FieldTable, row.arguments))
        bind.destination, bind.source = short(row.destination), short(row.source)
        bind.routing_key = row.routing_key
        return bind
    method = commands.Queue.Bind(routing_key="", arguments=cast(FieldTable, row.arguments))
    method.queue, method.exchange = short(row.destination), short(row.source)
    method.routing_key = row.routing_key
    return method


def _find_binding(backend: ManagementBackend, parameters: Mapping[str, str]) -> BindingRow:
    """By its properties key, percent-encoded or not. Raises ApiError(404)."""
    for row in between(backend, parameters):
        if parameters["key"] in (properties_key(row), unquote(properties_key(row))):
            return row
    raise not_found()


async def show_binding(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    return json_response(view_binding(_find_binding(backend, parameters)))


async def delete_binding(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    row = _find_binding(backend, parameters)
    method: commands.Exchange.Unbind | commands.Queue.Unbind
    if row.to_exchange:
        method = commands.Exchange.Unbind(arguments=cast(FieldTable, row.arguments))
        method.destination, method.source = row.destination, row.source
    else:
        method = commands.Queue.Unbind(arguments=cast(FieldTable, row.arguments))
        method.queue, method.exchange = row.destination, row.source
    method.routing_key = row.routing_key
    async with open_channel(backend, request, row.vhost) as channel:
        await channel.ask(method)
    return Response(204)


BETWEEN = "/api/bindings/:vhost/e/:source/:kind/:destination"
ROUTES: tuple[Route, ...] = (
    Route("GET", "/api/exchanges", list_exchanges),
    Route("GET", "/api/exchanges/:vhost", list_exchanges),
    Route("GET", "/api/exchanges/:vhost/:name", show_exchange),
    Route("PUT", "/api/exchanges/:vhost/:name", put_exchange),
    Route("DELETE", "/api/exchanges/:vhost/:name", delete_exchange),
    Route("GET", "/api/exchanges/:vhost/:name/bindings/:end", list_bindings_of_exchange),
    Route("GET", "/api/bindings", list_bindings),
    Route("GET", "/api/bindings/:vhost", list_bindings),
    Route("GET", "/api/queues/:vhost/:name/bindings", list_bindings_of_queue),
    Route("GET", BETWEEN, list_between),
    Route("POST", BETWEEN, add_binding),
    Route("GET", f"{BETWEEN}/:key", show_binding),
    Route("DELETE", f"{BETWEEN}/:key", delete_binding),
)
