"""The processes of containers: started, stopped and frozen by the engine, which also tells when one
ends that the harness did not end.

``ExitWatch`` hears from the engine when a container ends or starts. The engine's stream of events
is read by a thread of its own, over a connection of its own; it is open before the first container
starts, so no end is missed. An end that the harness brings about is announced with ``asked``, which
waits until the engine has told of it: so the next end of the same node, however soon, is no longer
taken for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any

import docker
import docker.errors
import requests.exceptions

from shalott.cluster.capabilities import Can
from shalott.cluster.disks.node_disks import MountedDisks
from shalott.cluster.docker import containers
from shalott.cluster.docker.engine import connect
from shalott.cluster.docker.links import ContainerLinks
from shalott.cluster.docker.names import LABEL_NODE, LABEL_TOKEN
from shalott.cluster.docker.nodes import ContainerNodes
from shalott.cluster.docker.resources import ContainerResources
from shalott.cluster.nodes import CommandResult, HelperEnd, NodeExit, NodeStatus
from shalott.core.errors import HarnessError

TOLD_WITHIN_S = 5.0
CANNOT_FREEZE = "unable to freeze"  # how runc says it


class ExitWatch:
    """``tell`` is called in the event loop with a node and its exit code, ``tell_start`` with a
    node."""

    def __init__(
        self,
        run: ContainerNodes,
        tell: Callable[[str, int | None], None],
        tell_start: Callable[[str], None],
    ) -> None:
        self._run = run
        self._tell = tell
        self._tell_start = tell_start
        self._asked: dict[str, asyncio.Event] = {}
        self._api: docker.APIClient | None = None
        self._stream: Any = None
        self._thread: threading.Thread | None = None
        self.on_end: Callable[[HelperEnd], None] = _log_end

    def open(self) -> None:
        """Listen from now on. Raises UsageError: no engine answers."""
        loop = asyncio.get_running_loop()
        self._api = connect()
        filters = {"type": ["container"], "event": ["die", "start"]}
        if self._run.others:
            filters["container"] = [*self._run.others]
        else:
            filters["label"] = [f"{LABEL_TOKEN}={self._run.token}"]
        self._stream = self._api.events(filters=filters, decode=True)
        self._thread = threading.Thread(
            target=self._read, args=(loop, self._stream), name="docker-exits", daemon=True
        )
        self._thread.start()

    def _read(self, loop: asyncio.AbstractEventLoop, stream: Any) -> None:
        try:
            for event in stream:
                actor = event.get("Actor", {})
                about = actor.get("Attributes", {})
                node = self._run.whose(actor.get("ID", ""), about.get(LABEL_NODE))
                if node is None:
                    continue
                if event.get("Action") == "start":
                    loop.call_soon_threadsafe(self._heard_start, node)
                else:
                    code = about.get("exitCode")
                    number = int(code) if code is not None else None
                    loop.call_soon_threadsafe(self._heard, node, number)
        except (docker.errors.DockerException, requests.exceptions.RequestException, OSError):
            if self._stream is not None:
                log.warning("the engine tells no more of nodes that end", exc_info=True)
        except RuntimeError:
            return  # the loop is closed: the run is over
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(self._over)

    def _over(self) -> None:
        if self._stream is not None:
            reason = "the engine tells no more of nodes that end"
            self.on_end(HelperEnd(helper="exit watch", reason=reason))

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


log = logging.getLogger("shalott.cluster.docker")


def _log_end(ended: HelperEnd) -> None:
    log.error("%s", ended.reason)


class ContainerProcesses:
    """See ``Processes``."""

    def __init__(
        self,
        run: ContainerNodes,
        links: ContainerLinks,
        resources: ContainerResources,
        disks: MountedDisks,
        *,
        capabilities: Can,
        on_exit: Callable[[NodeExit], None],
    ) -> None:
        self.capabilities = capabilities
        self._run = run
        self._links = links
        self._resources = resources
        self._disks = disks
        self._on_exit = on_exit
        self._exits = ExitWatch(run, self._exited, self._started)
        self._asking: dict[asyncio.Task[None], None] = {}  # of ends and starts

    def tell_helper_ends(self, tell: Callable[[HelperEnd], None]) -> None:
        """Call this when ends of nodes can be heard no more."""
        self._exits.on_end = tell

    def listen(self) -> None:
        """Hear of every end from now on."""
        self._exits.open()

    async def start(self, node: str) -> None:
        name = self._run.machine(node).name
        await self._run.engine.call(lambda api: api.start(name))
        # The engine answers when the process runs; it may have ended since, which is the node's
        # own affair.
        await self._run.status(node)
        await self._bring_back(node)

    async def _bring_back(self, node: str) -> None:
        """What a new life of a node's lacks or can't reach, as the one before."""
        await self._links.node_started(node)
        await self._resources.started(node, self._run.pids.get(node))

    def _started(self, node: str) -> None:
        """A node that the engine starts by itself has a new life too."""
        if self._run.machine(node).spec.restart_if_exits:
            self._ask(self._bring_back_restarted(node))

    async def _bring_back_restarted(self, node: str) -> None:
        try:
            if await self._run.pid_of(node) is not None:
                await self._bring_back(node)
        except HarnessError as error:
            log.warning("%s was started by the engine, without its faults: %s", node, error)

    async def stop(self, node: str, timeout_ms: int = 20000) -> None:
        machine = self._run.machine(node)
        if machine.spec.container is not None:
            timeout_ms = machine.spec.container.stop_ms or timeout_ms
        name, timeout_s = machine.name, max(1, round(timeout_ms / 1000))
        if node in self._run.stopped:
            # As the engine does with a frozen one: it could not end otherwise.
            await self.resume(node)
        await self._resources.stopping(node)
        is_up = await self._run.pid_of(node) is not None
        async with self._exits.asked(node, is_up=is_up):
            await self._run.engine.call(lambda api: api.stop(name, timeout=timeout_s))
        self._run.pids.pop(node, None)

    async def kill(self, node: str) -> None:
        name = self._run.machine(node).name
        is_up = await self._run.pid_of(node) is not None
        async with self._exits.asked(node, is_up=is_up):
            await self._run.engine.call(lambda api: containers.kill_and_wait(api, name))
        self._run.stopped.discard(node)
        self._run.pids.pop(node, None)

    def _exited(self, node: str, exit_code: int | None) -> None:
        self._ask(self._tell_exit(node, exit_code))

    def _ask(self, question: Coroutine[None, None, None]) -> None:
        asking = asyncio.create_task(question)
        self._asking[asking] = None
        asking.add_done_callback(self._asking.pop)

    async def _tell_exit(self, node: str, exit_code: int | None) -> None:
        name = self._run.machine(node).name
        try:
            starved = await self._run.engine.call(
                lambda api: containers.ran_out_of_memory(api, name)
            )
        except HarnessError:
            starved = False  # it is gone
        self._on_exit(NodeExit(node=node, exit_code=exit_code, out_of_memory=starved))

    async def power_off(self, node: str) -> None:
        self._disks.check("power")
        # Its end must not be heard: a machine without power closes no connection.
        await self._links.run_script(node, "ip link set eth0 down")
        await self.kill(node)
        await self._disks.power(node)

    async def pause(self, node: str) -> None:
        name = self._run.machine(node).name
        if not self._links.enters:
            # The engine runs nothing in a frozen container, so there links could not be cut from
            # inside. kill -1 spares its caller and the container's first process, which only
            # waits, and not a shell around it.
            await self._run.engine.call(
                lambda api: containers.execute_alone(api, name, ["sh", "-c", "kill -STOP -1"])
            )
        elif await self._freeze(name):
            return
        else:
            await self._run.engine.call(lambda api: signal_all(api, name, signal.SIGSTOP))
        self._run.stopped.add(node)

    async def _freeze(self, name: str) -> bool:
        """False where a process waits for its disk, which is a program of ours: the first version
        of control groups gives up on such a one, and a signal stops it once it has its answer."""
        try:
            await self._run.engine.call(lambda api: api.pause(name))
        except HarnessError as error:
            if CANNOT_FREEZE not in str(error):
                raise
            return False
        return True

    async def resume(self, node: str) -> None:
        name = self._run.machine(node).name
        if node not in self._run.stopped:
            await self._run.engine.call(lambda api: api.unpause(name))
            return
        self._run.stopped.discard(node)
        if self._links.enters:
            await self._run.engine.call(lambda api: signal_all(api, name, signal.SIGCONT))
        else:
            await self._run.execute(node, ["sh", "-c", "kill -CONT -1"])

    async def status(self, node: str) -> NodeStatus:
        return await self._run.status(node)

    async def run_command(
        self, node: str, command: Sequence[str], timeout_ms: int = 30000
    ) -> CommandResult:
        return await self._run.run_command(node, command, timeout_ms)

    async def heal(self) -> None:
        await asyncio.gather(*(self._resume_paused(node) for node in self._run.nodes))

    async def _resume_paused(self, node: str) -> None:
        if (await self.status(node)).state == "paused":
            await self.resume(node)

    async def settle(self) -> None:
        """Wait until every end was told."""
        await asyncio.gather(*self._asking)

    async def close(self) -> None:
        """The containers are removed with the rest of the run."""
        self._exits.close()
        await self.settle()
        # An interrupted boot may have calls out that still make things.
        await self._run.engine.settle()


def signal_all(api: docker.APIClient, name: str, number: signal.Signals) -> None:
    """Signal each process of a container, from outside, and what it forks meanwhile. Blocks."""
    told: dict[int, None] = {}
    while new := [pid for pid in _pids(api, name) if pid not in told]:
        for pid in new:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        told |= dict.fromkeys(new)


def _pids(api: docker.APIClient, name: str) -> list[int]:
    """As this host numbers them."""
    told = api.top(name, "-eo pid")
    return [int(row[0]) for row in told["Processes"]]
