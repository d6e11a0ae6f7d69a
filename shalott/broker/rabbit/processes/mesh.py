"""Mesh: one TCP connection to every other node, and the net tick that decides when a silent one is
down.

Of each pair the node whose name sorts first dials, again and again. A link is up after both sides
said Hello. It is down when the connection ends, or when nothing at all arrived for ``net_tick_ms``;
on a link that carries nothing else a tick goes out every quarter of that, so a silent peer is
declared down between 1 and 1.25 net ticks after its last byte (Erlang's net_kernel works so). A
link that broke for an instant is broken: both sides see the other go down and come back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from shalott.broker.base.env import Env, pause_ms
from shalott.broker.base.errors import cannot_listen
from shalott.broker.rabbit.config import NodeConfig, Peer
from shalott.broker.rabbit.processes.link import Frame, Hello, Link, LinkError, Tick
from shalott.broker.rabbit.processes.runtime import Runtime

log = logging.getLogger("shalott.broker.mesh")

REDIAL_MS = 500  # less for a short net tick


def linked_within_ms(net_tick_ms: int) -> float:
    """How long a node that has begun to listen may wait for a peer that runs and can be reached.

    The peer's last dial may hang for a net tick, in the network or at a machine that was down; then
    comes its pause, and the dial that gets through.
    """
    return 1.25 * net_tick_ms + _redial_ms(net_tick_ms)


def _redial_ms(net_tick_ms: int) -> float:
    return min(REDIAL_MS, net_tick_ms / 4)


class Mesh:
    """Links of one node. ``start`` listens and dials; frames and link changes go to the runtime."""

    def __init__(self, env: Env, config: NodeConfig, runtime: Runtime) -> None:
        self._env = env
        self._config = config
        self._runtime = runtime
        self._links: dict[str, Link] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._ungreeted: dict[Link, None] = {}
        self._server: asyncio.Server | None = None
        runtime.transmit = self.transmit

    async def start(self) -> None:
        """Raises ConfigError if the port can't be had."""
        host, port = self._config.bind_host, self._config.cluster_port
        try:
            loop = asyncio.get_running_loop()
            self._server = await loop.create_server(self._accepted, host, port)
        except OSError as error:
            raise cannot_listen("other nodes", host, port, "cluster_port", error) from error
        for peer in self._config.peers:
            if self._config.name < peer.name:
                self._tasks.append(
                    asyncio.create_task(self._dial_for_ever(peer), name=f"dial {peer.name}")
                )
        self._tasks.append(asyncio.create_task(self._tick(), name="net tick"))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._server is not None:
            self._server.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for link in list(self._ungreeted):
            link.abort()
        for peer in list(self._links):
            self._drop(peer, "stopped")

    def transmit(self, node: str, frame: Frame) -> bool:
        """Send if linked. True does not mean that it arrives."""
        link = self._links.get(node)
        if link is None:
            return False
        link.send(frame)
        return True

    def disconnect(self, node: str, reason: str) -> None:
        """Break the link on purpose. It is dialled again."""
        self._drop(node, reason)

    async def _dial_for_ever(self, peer: Peer) -> None:
        while True:
            if peer.name not in self._links:
                await self._dial(peer)
            await pause_ms(_redial_ms(self._config.net_tick_ms))
            if self._env.buggify("mesh.redial_late"):  # links come back in any order
                await pause_ms(self._env.rng.random() * self._config.net_tick_ms)

    async def _dial(self, peer: Peer) -> None:
        link = self._new_link(lambda link, frame: self._greeted_by_dialled(link, frame, peer.name))
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._config.net_tick_ms / 1000):
                await loop.create_connection(lambda: link, peer.host, peer.port)
                link.send(self._hello(peer.name))
                await link.greeted
        except (OSError, TimeoutError) as error:
            log.debug("no link to %s: %r", peer.name, error)
        finally:
            if not link.up:
                link.abort()
            self._ungreeted.pop(link, None)

    def _greeted_by_dialled(self, link: Link, frame: Frame, expected: str) -> None:
        self._serve(self._check(frame, expected=expected), link)

    def _accepted(self) -> Link:
        """A peer has dialled. It may take one net tick to say who it is."""
        link = self._new_link(self._greeted_by_dialler)
        loop = asyncio.get_running_loop()
        loop.call_later(self._config.net_tick_ms / 1000, self._abort_unless_greeted, link)
        return link

    def _greeted_by_dialler(self, link: Link, frame: Frame) -> None:
        hello = self._check(frame, expected=None)
        link.send(self._hello(hello.node))
        self._serve(hello, link)

    def _abort_unless_greeted(self, link: Link) -> None:
        if link in self._ungreeted:
            log.info("refused a link: it did not say hello")
            link.abort()

    def _new_link(self, on_hello: Callable[[Link, Frame], None]) -> Link:
        link = Link(on_hello, self._runtime.receive, self._ended)
        self._ungreeted[link] = None
        return link

    def _hello(self, to: str) -> Hello:
        return Hello(self._config.name, to, self._runtime.incarnation, self._config.cookie)

    def _check(self, frame: Frame, *, expected: str | None) -> Hello:
        if not isinstance(frame, Hello):
            raise LinkError("no hello")
        if frame.cookie != self._config.cookie:
            raise LinkError("another cluster's cookie")
        if frame.to != self._config.name or (expected is not None and frame.node != expected):
            raise LinkError(f"hello from {frame.node} to {frame.to}")
        if frame.node not in self._config.node_names or frame.node == self._config.name:
            raise LinkError(f"{frame.node} is not a node of this cluster")
        return frame

    def _serve(self, hello: Hello, link: Link) -> None:
        # A peer dials only when it has no link: the one that we still have is dead already.
        self._drop(hello.node, "replaced by a new connection")
        link.peer, link.up = hello.node, True
        self._ungreeted.pop(link, None)
        self._links[hello.node] = link
        log.info("linked to %s (incarnation %d)", hello.node, hello.incarnation)
        self._runtime.link_up(hello.node, hello.incarnation)

    def _ended(self, link: Link, reason: str) -> None:
        if link.up:
            self._drop(link.peer, reason)
        elif link in self._ungreeted:
            del self._ungreeted[link]
            log.info("refused a link: %s", reason)

    async def _tick(self) -> None:
        """Send proofs of life; drop the links of peers that gave none."""
        loop = asyncio.get_running_loop()
        silence_s = self._config.net_tick_ms / 1000
        while True:
            await pause_ms(self._config.net_tick_ms / 8)
            now_s = loop.time()
            for link in list(self._links.values()):
                if now_s - link.received_at >= silence_s:
                    self._drop(link.peer, "net_tick_timeout")
                elif link.is_quiet:
                    link.send(Tick())
                else:
                    link.is_quiet = True  # if nothing is sent until the next look

    def _drop(self, peer: str, reason: str) -> None:
        link = self._links.pop(peer, None)
        if link is None:
            return
        link.up = False
        link.abort()
        log.warning("link to %s is down: %s", peer, reason)
        self._runtime.link_down(peer, reason)
