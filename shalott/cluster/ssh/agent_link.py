"""AgentLink: requests to one host's agent, over a connection that may break and come back.

Each request has an id and is asked again after a reconnect; the agent does nothing twice. A lease
is renewed as long as this event loop runs. When the agent is gone, or the host can't be reached for
as long as the lease lasts, everything is undone over there, and each call from then on raises one
sentence that says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

import paramiko

from shalott.cluster.ssh.connection import Connection, Unreachable
from shalott.cluster.ssh.inventory import title_of
from shalott.core.errors import HarnessError, UsageError
from shalott.core.json_value import JsonObject
from shalott.core.plan import HostPlan

log = logging.getLogger("shalott.cluster.ssh")

T = TypeVar("T")
AgentEvent = Mapping[str, Any]  # a line of JSON
RETRY_S = 0.25
SETTLED_WITHIN_S = 30.0
RENEWALS = 4  # in one lease
CHUNK = 1 << 16


class AgentChannel:
    """One channel to an agent, with a thread that reads it: ``hear``, ``lost`` and ``failed`` are
    called in the event loop with the channel and a line, or the reason why no more will come."""

    def __init__(
        self,
        channel: paramiko.Channel,
        hear: Callable[[AgentChannel, bytes], None],
        lost: Callable[[AgentChannel, str], None],
        failed: Callable[[AgentChannel, str], None],
    ) -> None:
        self._channel = channel
        self._hear = hear
        self._lost = lost
        self._failed = failed
        self._sending = threading.Lock()

    def start(self, loop: asyncio.AbstractEventLoop, name: str) -> None:
        threading.Thread(target=self._read, args=(loop,), name=name, daemon=True).start()

    def send(self, line: bytes) -> None:
        """Blocks."""
        with self._sending:  # a long line goes in parts
            self._channel.sendall(line)

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        """In a thread: every line goes to the event loop."""
        channel = self._channel
        rest, reason, end = b"", "the channel was closed", self._lost
        try:
            while data := channel.recv(CHUNK):
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    loop.call_soon_threadsafe(self._hear, self, line)
            if channel.recv_exit_status() > 0:  # the connection is sound: it was the command
                said = channel.recv_stderr(CHUNK).decode(errors="replace").strip().splitlines()
                reason, end = (said or ["it ended"])[-1], self._failed
        except (OSError, EOFError, paramiko.SSHException) as error:
            reason = str(error) or type(error).__name__
        with contextlib.suppress(RuntimeError):  # the loop is closed: the run is over
            loop.call_soon_threadsafe(end, self, reason)


class AgentLink:
    """``on_event`` is called in the event loop with each event of the agent, once; ``on_over`` with
    a sentence when the agent is gone though nothing asked for it.

    ``opening`` starts the agent and becomes the bridge to it, ``attaching`` is the bridge alone:
    commands of the host. ``settings`` is the first line that the former reads.
    """

    def __init__(
        self,
        node: str,
        host: HostPlan,
        lease_s: float,
        threads: ThreadPoolExecutor,
        on_event: Callable[[AgentEvent], None],
        on_over: Callable[[str], None],
    ) -> None:
        self.node = node
        self.host = host
        self.connection: Connection | None = None
        self._lease_s = lease_s
        self._threads = threads
        self._on_event = on_event
        self._on_over = on_over
        self._attaching = ""
        self._channel: AgentChannel | None = None
        self._calls: dict[Future[Any], None] = {}
        self._serial = itertools.count(1)
        self._pending: dict[str, tuple[bytes, asyncio.Future[Any]]] = {}
        self._heard = 0  # the last event's number
        self._over = ""  # why no call can be answered any more
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._is_closing = False
        self._is_recovering = False

    async def connect(self) -> Connection:
        """Raises UsageError, Unreachable."""
        return await self.in_thread(self._connect)

    def _connect(self) -> Connection:
        # Here, so that it is closed though the caller is cancelled.
        self.connection = Connection(self.host)
        return self.connection

    async def in_thread(self, function: Callable[[], T]) -> T:
        """Run what blocks. A cancelled caller does not stop it: ``settle`` waits for it."""
        future = self._threads.submit(function)
        self._calls[future] = None
        try:
            return await asyncio.wrap_future(future)
        finally:
            if future.done():
                self._calls.pop(future, None)

    async def settle(self) -> None:
        """Wait until no call is out."""
        await asyncio.to_thread(wait, list(self._calls), SETTLED_WITHIN_S)
        self._calls.clear()

    async def open(self, opening: str, attaching: str, settings: JsonObject) -> None:
        """Start the agent and attach. Raises HarnessError."""
        self._attaching = attaching
        await self._attach(opening, json.dumps(settings).encode() + b"\n")
        await self.call("hello", heard=0)
        self._spawn(self._renew())

    async def call(self, do: str, **fields: Any) -> Any:
        """The agent's answer. Raises HarnessError with what it refuses, or why there is none."""
        if self._over:
            raise HarnessError(self._over)
        identity = str(next(self._serial))
        line = json.dumps({"id": identity, "do": do, **fields}).encode() + b"\n"
        answered: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._pending[identity] = line, answered
        try:
            await self._send(line)
            return await answered
        finally:
            self._pending.pop(identity, None)

    @property
    def why_over(self) -> str:
        """The sentence that each call raises by now; "" while calls are answered."""
        return self._over

    async def end(self) -> None:
        """Have everything undone, and wait until it is. Nothing is raised: a host that can't be
        asked does so by itself."""
        if self._over or self._channel is None:
            return
        self._is_closing = True
        asking = asyncio.ensure_future(self.call("end"))
        await asyncio.wait([asking], timeout=self._lease_s)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)

    async def close(self) -> None:
        self._is_closing = True
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        connection, self.connection, self._channel = self.connection, None, None
        if connection is not None:
            await self.in_thread(connection.close)

    # -- inside

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    async def _attach(self, command: str, first: bytes = b"") -> None:
        """A channel to the agent, with a thread that reads it."""
        connection, loop = self.connection, asyncio.get_running_loop()
        assert connection is not None

        def attach() -> None:
            channel = connection.session(command)
            channel.sendall(first)
            self._channel = AgentChannel(channel, self._hear, self._lost, self._failed)
            self._channel.start(loop, f"ssh-{self.node}")

        await self.in_thread(attach)

    def _failed(self, channel: AgentChannel, reason: str) -> None:
        """The agent's command failed, as it would again."""
        if channel is self._channel:
            self._give_up(f"its agent can't be run: {reason}")

    def _hear(self, channel: AgentChannel, line: bytes) -> None:
        if channel is not self._channel:
            return
        try:
            message = json.loads(line)
        except ValueError:
            self._give_up(f"it said {line[:200].decode(errors='replace')!r}")
            return
        if "gone" in message:
            self._give_up(message["gone"])
        elif "event" in message:
            if message["event"] > self._heard:
                self._heard = message["event"]
                self._on_event(message)
        elif message["id"] in self._pending:
            _, answered = self._pending[message["id"]]
            if answered.done():
                return
            if "error" in message:
                answered.set_exception(HarnessError(f"{self.node}: {message['error']}"))
            else:
                answered.set_result(message["result"])

    async def _send(self, line: bytes) -> None:
        """If it can't be sent now it is when there is a connection again."""
        channel = self._channel
        if channel is None:
            return
        try:
            await self.in_thread(lambda: channel.send(line))
        except (OSError, EOFError, paramiko.SSHException) as error:
            self._lost(channel, str(error) or type(error).__name__)

    def _lost(self, channel: AgentChannel, reason: str) -> None:
        if channel is not self._channel or self._over or self._is_recovering:
            return
        self._channel = None
        if self._is_closing:
            self._finish("it was ended")
            return
        log.warning("the connection to %s (%s) is lost: %s", self.node, title_of(self.host), reason)
        self._is_recovering = True
        self._spawn(self._recover(reason))

    async def _recover(self, reason: str) -> None:
        """Attach again, for as long as the agent waits; then ask again what has no answer."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._lease_s
        try:
            while True:
                try:
                    old, self.connection = self.connection, None
                    if old is not None:
                        await self.in_thread(old.close)
                    await self.connect()
                    await self._attach(self._attaching)
                    break
                except (Unreachable, UsageError) as error:
                    reason = str(error)
                if loop.time() > deadline:
                    self._give_up(
                        f"{reason}; its agent undoes every fault there and ends the node, at the"
                        f" latest {self._lease_s:g} s after it heard last"
                    )
                    return
                await asyncio.sleep(RETRY_S)
        finally:
            self._is_recovering = False
        self._spawn(self._ask_again())

    async def _ask_again(self) -> None:
        hello = {"id": f"hello-{next(self._serial)}", "do": "hello", "heard": self._heard}
        await self._send(json.dumps(hello).encode() + b"\n")
        log.warning("%s (%s) is reached again", self.node, title_of(self.host))
        for line, answered in list(self._pending.values()):
            if not answered.done():
                await self._send(line)

    async def _renew(self) -> None:
        interval_s = self._lease_s / RENEWALS
        while not self._over:
            await asyncio.sleep(interval_s)
            channel = self._channel
            if channel is None:
                continue
            asking = asyncio.ensure_future(self.call("renew"))
            done, _ = await asyncio.wait([asking], timeout=interval_s)
            if not done:
                asking.cancel()
                self._lost(channel, f"it did not answer for {interval_s:g} s")
            await asyncio.gather(asking, return_exceptions=True)

    def _give_up(self, reason: str) -> None:
        self._finish(f"{self.node} ({title_of(self.host)}) is lost to the harness: {reason}")

    def _finish(self, sentence: str) -> None:
        if self._over:
            return
        self._over = sentence
        if not self._is_closing:
            log.error("%s", sentence)
            self._on_over(sentence)
        for _, answered in self._pending.values():
            if not answered.done():
                answered.set_exception(HarnessError(sentence))
