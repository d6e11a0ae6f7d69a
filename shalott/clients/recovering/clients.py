"""Who consumes: our own client, or a library that recovers by itself (``--client``)."""

from __future__ import annotations

from functools import partial
from typing import Literal

from shalott.clients.consuming.client import ConsumerClients
from shalott.clients.real_only import OWN, refuse_in_simulation
from shalott.clients.recovering.aio_pika_library import AioPika
from shalott.clients.recovering.consumer_client import (
    LibraryHost,
    RecoveringClient,
    quieten_libraries,
)
from shalott.clients.recovering.hosts import Hosts
from shalott.clients.recovering.library import require_library
from shalott.clients.recovering.pika_library import Pika
from shalott.core.client import Client, MakeClient

AmqpClientName = Literal["own", "aio-pika", "pika"]
_LIBRARIES: dict[str, type[AioPika | Pika]] = {"aio-pika": AioPika, "pika": Pika}


def check_client(name: AmqpClientName, backend: str) -> None:
    """Raises UsageError for a client that can't be had there."""
    refuse_in_simulation(name, backend)
    if name != OWN:
        require_library(name)


def make_clients(name: AmqpClientName, own: ConsumerClients, threads: int) -> MakeClient:
    """Clients of one run, by where their node listens."""
    if name == OWN:
        return own
    hosts: Hosts[LibraryHost] = Hosts()
    make_library = partial(_LIBRARIES[name], vhost=own.credentials.vhost)

    def make(host: str, port: int) -> Client:
        quieten_libraries()
        return RecoveringClient(
            host,
            port,
            make_library=make_library,
            own=own(host, port),
            hosts=hosts,
            threads=threads,
            numbers=own.numbers,
            body_bytes=own.body_bytes,
            op_timeout_ms=own.op_timeout_ms,
        )

    return make
