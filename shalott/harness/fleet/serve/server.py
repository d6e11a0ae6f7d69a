"""Listening: one socket, a clean end on Ctrl-C."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import uvicorn

from shalott.core.errors import UsageError
from shalott.harness.fleet.serve.app import build_app, read_ahead
from shalott.harness.fleet.serve.guard import is_loopback, machine_names

GRACE_S = 2  # for pages that follow a run, when the server ends


def serve(
    store: Path, host: str, port: int, names: tuple[str, ...], say: Callable[[str], None]
) -> None:
    """Serve the store until SIGINT or SIGTERM. Raises UsageError if it can't listen there."""
    listening = _listen(host, port)
    with listening:
        own = names if is_loopback(host) else (*names, *machine_names())
        app = build_app(store, str(store), host=host, names=own)
        read_ahead(app)
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            lifespan="off",
            timeout_graceful_shutdown=GRACE_S,
            h11_max_incomplete_event_size=32 << 10,
        )
        say(f"{store} is shown at {address_of(listening)} (Ctrl-C ends it)")
        try:
            uvicorn.Server(config).run(sockets=[listening])
        except KeyboardInterrupt:  # uvicorn raises it again when it has ended in order
            return


def _listen(host: str, port: int) -> socket.socket:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = found[0]
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise UsageError(f"--host {host}: {error.strerror}") from error
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(128)
    except OSError as error:
        listening.close()
        raise UsageError(
            f"nobody can listen at {host}, port {port}: {error.strerror}; choose another --port"
        ) from error
    return listening


def address_of(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"
