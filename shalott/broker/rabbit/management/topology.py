"""/api/exchanges and /api/bindings: reading only."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import msgspec

from shalott.broker.base.http_api import Request, Response, json_response, not_found
from shalott.broker.rabbit.amqp.exchanges import predeclared_exchanges
from shalott.broker.rabbit.management.backend import (
    ManagementBackend,
    Route,
    queue_rows,
    require_vhost,
)
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
    """The default exchange has no name; RabbitMQ calls it amq.default here."""
    name = "" if parameters["name"] == "amq.default" else parameters["name"]
    for row in exchange_rows(backend):
        if (row.vhost, row.name) == (parameters["vhost"], name):
            return json_response(view_exchange(backend, row))
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
        "properties_key": _properties_key(row),
    }


def _properties_key(row: BindingRow) -> str:
    """What tells two bindings of one pair apart."""
    if not row.arguments:
        return row.routing_key or "~"
    arguments = msgspec.json.encode(row.arguments, order="deterministic")
    return f"{row.routing_key}~{zlib.crc32(arguments):08x}"


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


ROUTES: tuple[Route, ...] = (
    Route("GET", "/api/exchanges", list_exchanges),
    Route("GET", "/api/exchanges/:vhost", list_exchanges),
    Route("GET", "/api/exchanges/:vhost/:name", show_exchange),
    Route("GET", "/api/bindings", list_bindings),
    Route("GET", "/api/bindings/:vhost", list_bindings),
    Route("GET", "/api/queues/:vhost/:name/bindings", list_bindings_of_queue),
)
