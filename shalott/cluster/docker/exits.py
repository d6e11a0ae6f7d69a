"""ExitWatch: hears from the engine when a node's container ends or starts, and tells of ends that
the harness did not ask for, and of all starts: the engine starts some nodes again by itself.

The engine's stream of events is read by a thread of its own, over a connection of its own; it is
open before the first container starts, so no end is missed. An end that the harness brings about is
announced with ``asked``, which waits until the engine has told of it: so the next end of the same
node, however soon, is no longer taken for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import docker
import docker.errors
import requests.exceptions

from shalott.cluster.docker.engine import connect
from shalott.cluster.docker.names import LABEL_NODE, LABEL_TOKEN

log = logging.getLogger("shalott.cluster.docker")

TOLD_WITHIN_S = 5.0


class ExitWatch:
    """``tell`` is called in the event loop with a node and its exit code, ``tell_start`` with a
    node."""

    def __init__(
        self,
        token: str,
        tell: Callable[[str, int | None], None],
        tell_start: Callable[[str], None],
    ) -> None:
        self._token = token
        self._tell = tell
        self._tell_start = tell_start
        self._asked: dict[str, asyncio.Event] = {}
        self._api: docker.APIClient | None = None
        self._stream: Any = None
        self._thread: threading.Thread | None = None

    def open(self) -> None:
        """Listen from now on. Raises UsageError: no engine answers."""
        loop = asyncio.get_running_loop()
        self._api = connect()
        filters = {
            "type": ["container"],
            "event": ["die", "start"],
            "label": [f"{LABEL_TOKEN}={self._token}"],
        }
        self._stream = self._api.events(filters=filters, decode=True)
        self._thread = threading.Thread(
            target=self._read, args=(loop, self._stream), name="docker-exits", daemon=True
        )
        self._thread.start()

    def _read(self, loop: asyncio.AbstractEventLoop, stream: Any) -> None:
        try:
            for event in stream:
                about = event.get("Actor", {}).get("Attributes", {})
                if LABEL_NODE not in about:
                    continue
                if event.get("Action") == "start":
                    loop.call_soon_threadsafe(self._heard_start, about[LABEL_NODE])
                else:
                    code = about.get("exitCode")
                    number = int(code) if code is not None else None
                    loop.call_soon_threadsafe(self._heard, about[LABEL_NODE], number)
        except (docker.errors.DockerException, requests.exceptions.RequestException, OSError):
            log.warning("the engine tells no more of nodes that end", exc_info=True)
        except RuntimeError:
            pass  # the loop is closed: the run is over

    def _heard_start(self, node: str) -> None:
        if self._stream is not None:
            self._tell_start(node)

    def _heard(self, node: str, exit_code: int | None) -> None:
        asked = self._asked.get(node)
        if asked is not None:
            asked.set()
        elif self._stream is not None:
            self._tell(node, exit_code)

    @contextlib.asynccontextmanager
    async def asked(self, node: str, *, is_up: bool) -> AsyncIterator[None]:
        """While it lasts the harness ends ``node``; ``is_up``: whether there is anything to end."""
        if not is_up or self._stream is None:
            yield
            return
        told = self._asked[node] = asyncio.Event()
        try:
            yield
            try:
                await asyncio.wait_for(told.wait(), TOLD_WITHIN_S)
            except TimeoutError:
                log.warning("the engine did not tell of the end of %s", node)
        finally:
            self._asked.pop(node, None)

    def close(self) -> None:
        """What ends from now on is not told."""
        stream, self._stream = self._stream, None
        if stream is not None:
            with contextlib.suppress(OSError, docker.errors.DockerException):
                stream.close()
        if self._thread is not None:
            self._thread.join(TOLD_WITHIN_S)
            self._thread = None
        if self._api is not None:
            self._api.close()
            self._api = None
