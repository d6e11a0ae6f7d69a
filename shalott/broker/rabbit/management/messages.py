"""Publishing to an exchange and getting from a queue: POST /api/exchanges/VHOST/NAME/publish and
/api/queues/VHOST/NAME/get (rabbit_mgmt_wm_exchange_publish.erl, rabbit_mgmt_wm_queue_get.erl)."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Literal

import msgspec
from pamqp import commands

from shalott.broker.base.http_api import (
    Request,
    Response,
    bad_request,
    decode_body,
    json_response,
)
from shalott.broker.rabbit.amqp.properties import join_properties, split_properties
from shalott.broker.rabbit.amqp.tables import read_table
from shalott.broker.rabbit.amqp.wire import Command
from shalott.broker.rabbit.management.backend import ManagementBackend, Route, require_vhost
from shalott.broker.rabbit.management.bodies import Number, number, short
from shalott.broker.rabbit.management.direct_channel import open_channel

GET_MAX = 50_000  # messages of one request

# By their names in JSON, which are the specification's: what pamqp calls them, and their types.
PROPERTIES: Mapping[str, tuple[str, str]] = {
    name.removeprefix("message_") if name == "message_type" else name: (
        name,
        commands.Basic.Properties.amqp_type(name),
    )
    for name in commands.Basic.Properties.flags
}
SHOWN_AS: Mapping[str, str] = {name: shown for shown, (name, _) in PROPERTIES.items()}
INTEGERS = ("delivery_mode", "priority", "timestamp")


class PublishBody(msgspec.Struct, kw_only=True):
    properties: dict[str, object] | list[object]  # an empty list is an empty table too
    routing_key: str
    payload: str
    payload_encoding: Literal["string", "base64"]


async def publish(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    """``routed`` is whether any queue has it, and confirmed."""
    require_vhost(backend, parameters["vhost"])
    body = decode_body(request, PublishBody)
    name = "" if parameters["name"] == "amq.default" else parameters["name"]
    properties = encode_properties(body.properties if isinstance(body.properties, dict) else {})
    payload = _decoded(body.payload, body.payload_encoding)
    method = commands.Basic.Publish(exchange="", routing_key="", mandatory=True)
    method.exchange, method.routing_key = name, short(body.routing_key)
    routed = True
    async with open_channel(backend, request, parameters["vhost"]) as channel:
        await channel.ask(commands.Confirm.Select())
        channel.tell(method, properties, payload)
        while True:
            said = (await channel.answers.next()).method
            if isinstance(said, commands.Basic.Return):
                routed = False
            elif isinstance(said, commands.Basic.Nack):
                raise bad_request("rejected")
            elif isinstance(said, commands.Basic.Ack):
                return json_response({"routed": routed})


def _decoded(payload: str, encoding: str) -> bytes:
    if encoding == "string":
        return payload.encode()
    try:
        return base64.b64decode(payload)
    except (binascii.Error, ValueError) as error:
        raise bad_request(f"the payload is not base64: {error}") from error


def encode_properties(given: Mapping[str, object]) -> bytes:
    """Of JSON. Raises ApiError(400)."""
    unknown = [name for name in given if name not in PROPERTIES]
    if unknown:
        raise bad_request(f"unknown_properties: {', '.join(unknown)}")
    encoded: dict[str, bytes] = {}
    for name, value in given.items():
        try:
            encoded[PROPERTIES[name][0]] = _encode(name, value)
        except (TypeError, ValueError, OverflowError, OSError, RecursionError) as error:
            raise bad_request(f"the property {name} can't be {value!r}: {error}") from error
    return join_properties(encoded)


def _encode(name: str, value: object) -> bytes:
    """Raises ValueError, or what pamqp does."""
    if name in INTEGERS:
        value = number(value) if isinstance(value, int | str) else value
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError("it must be a number")
        if name == "timestamp":
            return value.to_bytes(8, "big")
    elif name == "headers":
        if not isinstance(value, dict):
            raise ValueError("it must be an object")
    elif not isinstance(value, str) or len(value.encode()) > 255:
        raise ValueError("it must be a string of at most 255 bytes")
    whole = commands.Basic.Properties()
    setattr(whole, PROPERTIES[name][0], value)
    return bytes(whole.marshal())[2:]


# -- getting ---------------------------------------------------------------------------------------


class GetBody(msgspec.Struct, kw_only=True):
    ackmode: Literal[
        "ack_requeue_true", "ack_requeue_false", "reject_requeue_true", "reject_requeue_false"
    ]
    encoding: Literal["auto", "base64"]
    count: Number = 1
    truncate: Number | None = None


async def get(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    """They are all there before one is given back, so none comes twice."""
    require_vhost(backend, parameters["vhost"])
    body = decode_body(request, GetBody)
    count = number(body.count)
    limit = None if body.truncate is None else number(body.truncate)
    if not 0 <= count <= GET_MAX or (limit is not None and limit < 0):
        raise bad_request(f"count must be 0 to {GET_MAX}, truncate not negative")
    shown: list[dict[str, object]] = []
    method = commands.Basic.Get(queue="", no_ack=body.ackmode == "ack_requeue_false")
    method.queue = short(parameters["name"])
    async with open_channel(backend, request, parameters["vhost"]) as channel:
        tags = []
        for _ in range(count):
            got = await channel.ask(method)
            if not isinstance(got.method, commands.Basic.GetOk):
                break
            tags.append(got.method.delivery_tag)
            shown.append(_view(got, got.method, body.encoding, limit))
        if not method.no_ack:
            requeue = body.ackmode.endswith("requeue_true")
            for tag in tags:
                channel.tell(commands.Basic.Reject(delivery_tag=tag, requeue=requeue))
    return json_response(shown)


def _view(
    got: Command, method: commands.Basic.GetOk, encoding: str, limit: int | None
) -> dict[str, object]:
    body = got.body if limit is None else got.body[:limit]
    payload, how = base64.b64encode(body).decode(), "base64"
    if encoding == "auto":
        try:
            payload, how = body.decode(), "string"
        except UnicodeDecodeError:
            pass
    return {
        "payload_bytes": len(got.body),
        "redelivered": method.redelivered,
        "exchange": method.exchange,
        "routing_key": method.routing_key,
        "message_count": method.message_count,
        "properties": view_properties(got.properties) or [],  # an empty table is a list there
        "payload": payload,
        "payload_encoding": how,
    }


def view_properties(data: bytes) -> dict[str, object]:
    """Of an encoded list, as JSON has them."""
    shown: dict[str, object] = {}
    for name, encoded in split_properties(data).items():
        match PROPERTIES[SHOWN_AS[name]][1]:
            case "table":
                value: object = read_table(encoded)
            case "timestamp":
                value = int.from_bytes(encoded, "big")
            case "octet":
                value = encoded[0]
            case _:  # a short string, which may hold any bytes
                value = encoded[1:]
        shown[SHOWN_AS[name]] = jsonable(value)
    return shown


def jsonable(value: object) -> object:
    """What AMQP has and JSON has not, as text."""
    match value:
        case bytes():
            return value.decode("utf-8", "replace")
        case dict():
            return {str(name): jsonable(each) for name, each in value.items()}
        case list():
            return [jsonable(each) for each in value]
    return value


ROUTES: tuple[Route, ...] = (
    Route("POST", "/api/exchanges/:vhost/:name/publish", publish),
    Route("POST", "/api/queues/:vhost/:name/get", get),
)
