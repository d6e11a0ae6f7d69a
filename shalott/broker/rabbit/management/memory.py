"""/api/shalott/vm_memory_high_watermark: the operator's limit, for as long as the node's process
lives (``rabbitmqctl set_vm_memory_high_watermark``; RabbitMQ has no HTTP call for it).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec

from shalott.broker.base.http_api import Request, Response, bad_request
from shalott.broker.rabbit.management.backend import ManagementBackend, Route


class Watermark(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One of the two: a part of the machine's memory, or bytes."""

    fraction: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    absolute: Annotated[int, msgspec.Meta(ge=0)] | None = None


async def set_watermark(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    try:
        wanted = msgspec.json.decode(request.body, type=Watermark)
    except msgspec.DecodeError as error:
        raise bad_request(str(error)) from error
    if (wanted.fraction is None) == (wanted.absolute is None):
        raise bad_request("give either fraction or absolute")
    if wanted.absolute is not None:
        backend.memory.set_limit(wanted.absolute)
    elif wanted.fraction is not None:
        backend.memory.set_limit(backend.config.fraction_of_memory(wanted.fraction))
    return Response(204)


ROUTES: tuple[Route, ...] = (Route("PUT", "/api/shalott/vm_memory_high_watermark", set_watermark),)
