"""Runtime: spawns processes, carries messages, calls and monitors, in this node and between nodes.

Rules, as Erlang's distribution has them:
- between two processes messages arrive in order, and none twice; those in flight when a link breaks
  are lost;
- ``send`` never blocks and never fails;
- a monitor fires exactly once: when its target ends, when it isn't there, or when the link to its
  node breaks;
- when a link breaks, every Down(noconnection) is delivered before the NodeDownEvent. (The order
  matters: it is the window in which a master that is about to pause still confirms what only its
  lost mirrors were missing.)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from itertools import count
from typing import Protocol

from shalott.broker.base.errors import CallTimeout, NodeDown, NoProcess
from shalott.broker.rabbit.processes.link import (
    CallFrame,
    DemonitorFrame,
    DownFrame,
    Frame,
    MonitorFrame,
    ReplyFrame,
    SendFrame,
    address_of,
)
from shalott.broker.rabbit.processes.messages import (
    Address,
    Codec,
    Down,
    Failed,
    Message,
    Name,
    NodeDownEvent,
    NodeUp,
    Pid,
    to_an_old_life,
)
from shalott.broker.rabbit.processes.turns import Turns

log = logging.getLogger("shalott.broker.processes")


class ExitProcess(BaseException):
    """Raised inside a process to end it with a reason. A BaseException, so that no handler swallows
    it.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Caller:
    """Who waits for the answer to a call. ``reply`` answers it, once; later answers are dropped."""

    __slots__ = ("_send", "pid")

    def __init__(self, pid: Pid | None, send: Callable[[Message], None]) -> None:
        self.pid = pid  # the calling process, if a process it is
        self._send: Callable[[Message], None] | None = send

    def reply(self, answer: Message) -> None:
        send, self._send = self._send, None
        if send is not None:
            send(answer)


class Envelope:
    """A call in a mailbox."""

    __slots__ = ("caller", "request")

    def __init__(self, request: Message, caller: Caller) -> None:
        self.request = request
        self.caller = caller


class Actor(Protocol):
    """What the runtime needs of a process (process.py)."""

    pid: Pid
    runtime: Runtime

    def deliver(self, item: Message | Envelope) -> None: ...

    def describe(self) -> str: ...

    def drop_timers(self) -> None: ...

    async def run(self) -> None: ...

    async def stopping(self, reason: str) -> None: ...


class Calls:
    """Calls under way: those that this node's processes made, and those that they must answer."""

    def __init__(self, refs: Iterator[int]) -> None:
        self._refs = refs
        self._made: dict[int, tuple[str, asyncio.Future[Message]]] = {}  # ref -> (node, future)
        # calls that a local process has not answered, whether it has begun on them or not
        self._unanswered: dict[Pid, dict[int, Caller]] = {}

    def open(self, node: str) -> tuple[int, asyncio.Future[Message]]:
        """A call to a process of ``node``: its reference and its answer. ``close`` it."""
        ref = next(self._refs)
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._made[ref] = (node, future)
        return ref, future

    def close(self, ref: int) -> None:
        self._made.pop(ref, None)

    def answer(self, ref: int, answer: Message) -> None:
        entry = self._made.get(ref)
        if entry is not None and not entry[1].done():
            entry[1].set_result(answer)

    def deliver(
        self, process: Actor, request: Message, caller: Pid | None, send: Callable[[Message], None]
    ) -> None:
        """If ``process`` ends without an answer, the caller gets Failed("noproc")."""
        key = next(self._refs)
        unanswered = self._unanswered.setdefault(process.pid, {})

        def reply(answer: Message) -> None:
            unanswered.pop(key, None)
            send(answer)

        unanswered[key] = Caller(caller, reply)
        process.deliver(Envelope(request, unanswered[key]))

    def process_ended(self, pid: Pid) -> None:
        for caller in list(self._unanswered.pop(pid, {}).values()):
            caller.reply(Failed("noproc"))

    def link_down(self, node: str, reason: str) -> None:
        for called, future in self._made.values():
            if called == node and not future.done():
                future.set_exception(NodeDown(f"the link to {node} broke: {reason}"))


class Runtime:
    """All processes of one node. ``transmit`` is set by the mesh: it sends a frame to a peer, if it
    is linked. ``on_crash`` is told which process ended by an exception of its own, and by which.
    """

    def __init__(self, node: str, incarnation: int, codec: Codec) -> None:
        self.node = node
        self.incarnation = incarnation
        self.codec = codec
        self.transmit: Callable[[str, Frame], bool] = lambda node, frame: False
        self.on_crash: Callable[[str, str], None] = lambda process, reason: None
        self._linked: dict[str, int] = {}  # peer -> its incarnation
        self._serial = 0
        self._refs = count(1)  # of calls and monitors
        self.processes: dict[Pid, Actor] = {}
        self._tasks: dict[Pid, asyncio.Task[None]] = {}
        self._names: dict[str, Pid] = {}
        self._watchers: list[Pid] = []  # processes that get NodeUp and NodeDownEvent
        self._monitors: dict[int, tuple[Pid, Pid]] = {}  # our refs: ref -> (target, watcher)
        self._watching: dict[Pid, dict[int, None]] = {}  # the same by watcher
        # watchers of a local process: target -> {(watcher's node, ref): None}
        self._watched: dict[Pid, dict[tuple[str, int], None]] = {}
        self._calls = Calls(self._refs)
        self.turns = Turns()

    # -- processes ---------------------------------------------------------------------------------

    def spawn(self, process: Actor, *, name: str | None = None) -> Pid:
        """Start ``process``. A name already taken by a live process is a bug of the caller."""
        self._serial += 1
        pid = Pid(self.node, self.incarnation, self._serial)
        process.pid, process.runtime = pid, self
        self.processes[pid] = process
        if name is not None:
            assert name not in self._names, f"{name} is registered already"
            self._names[name] = pid
        label = f"{type(process).__name__}{pid}"
        self._tasks[pid] = asyncio.create_task(self._run(process), name=label)
        return pid

    async def _run(self, process: Actor) -> None:
        reason = "killed"
        try:
            try:
                await process.run()
                end = "normal"
            except ExitProcess as wish:
                end = wish.reason
            except asyncio.CancelledError:
                raise
            except Exception as error:
                log.exception("%s crashed", type(process).__name__)
                end = f"crash: {type(error).__name__}: {error}"
            reason = await self._stopped(process, end)
        finally:
            self._ended(process.pid, reason)

    async def _stopped(self, process: Actor, reason: str) -> str:
        """Its last words. Returns the reason."""
        if reason.startswith("crash"):  # also of a task of the process's own: it says so itself
            self.on_crash(process.describe(), reason)
        try:
            await process.stopping(reason)
        except ExitProcess:
            pass
        except Exception as error:
            log.exception("%s crashed while stopping", type(process).__name__)
            self.on_crash(process.describe(), f"crash: {type(error).__name__}: {error}")
        return reason

    def _ended(self, pid: Pid, reason: str) -> None:
        process = self.processes.pop(pid)
        process.drop_timers()
        del self._tasks[pid]
        for name in [name for name, owner in self._names.items() if owner == pid]:
            del self._names[name]
        if pid in self._watchers:
            self._watchers.remove(pid)
        self._calls.process_ended(pid)
        for node, ref in self._watched.pop(pid, {}):
            if node == self.node:
                self._fire(ref, reason)
            else:
                self.transmit(node, DownFrame(ref, reason))
        for ref in list(self._watching.get(pid, ())):
            self.demonitor(ref)

    def is_alive(self, pid: Pid) -> bool:
        """Whether a process of this node lives. For a remote one: whether its node's incarnation is
        linked.
        """
        if pid.node == self.node:
            return pid in self.processes
        return self._linked.get(pid.node) == pid.incarnation

    def process(self, pid: Pid) -> Actor | None:
        """A local process, for read-only looks by the management API."""
        return self.processes.get(pid)

    async def kill(self, pid: Pid) -> None:
        """End a local process at once; its ``stopping`` does not run. Returns when it is gone."""
        task = self._tasks.get(pid)
        if task is None:
            return
        task.cancel()
        await asyncio.wait([task])
        if pid in self.processes:  # a task that never ran its first step skips its ``finally``
            self._ended(pid, "killed")

    def nodes(self) -> list[str]:
        """Linked peers, sorted."""
        return sorted(self._linked)

    def watch_nodes(self, pid: Pid) -> None:
        """From now on ``pid`` gets NodeUp and NodeDownEvent."""
        self._watchers.append(pid)

    # -- messages ----------------------------------------------------------------------------------

    def send(self, to: Address, message: Message) -> None:
        """Deliver, or lose: it never blocks and never fails."""
        if to.node == self.node:
            process = self._resolve(to)
            if process is not None:
                process.deliver(message)
            elif isinstance(to, Pid):
                self._tell_old(message, None, to)
        else:
            payload = self.codec.encode(message)
            if isinstance(to, Name):
                self.transmit(to.node, SendFrame(None, to.name, payload))
            else:
                self.transmit(to.node, SendFrame(to, "", payload))

    async def call(
        self, to: Address, request: Message, *, timeout_ms: float | None, caller: Pid | None = None
    ) -> Message:
        """Send and await the answer. Raises NoProcess, NodeDown or CallTimeout.

        A ``Failed`` answer is returned, not raised, except kind "noproc".
        """
        ref, future = self._calls.open(to.node)
        try:
            if to.node == self.node:
                process = self._resolve(to)
                if process is None:
                    if isinstance(to, Pid):
                        self._tell_old(request, caller, to)
                    raise NoProcess(f"{to} is not alive")
                self._calls.deliver(
                    process, request, caller, lambda answer: self._calls.answer(ref, answer)
                )
            else:
                frame = CallFrame(*address_of(to), ref, caller, self.codec.encode(request))
                if not self.transmit(to.node, frame):
                    raise NodeDown(f"{to.node} is not linked to {self.node}")
            try:
                async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                    answer = await future
            except TimeoutError:
                text = f"{type(request).__name__} to {to} took over {timeout_ms} ms"
                raise CallTimeout(text) from None
        finally:
            self._calls.close(ref)
        if isinstance(answer, Failed) and answer.kind == "noproc":
            raise NoProcess(f"{to} is not alive")
        return answer

    def _tell_old(self, message: Message, sender: Pid | None, to: Pid) -> None:
        """Erlang drops what is sent to a process of a node's former life, and says so."""
        if to.incarnation != self.incarnation:
            log.error(to_an_old_life(message, sender, to, self.node, self.incarnation))

    def _resolve(self, to: Address) -> Actor | None:
        if isinstance(to, Name):
            pid = self._names.get(to.name)
            return None if pid is None else self.processes.get(pid)
        return self.processes.get(to)

    # -- monitors ----------------------------------------------------------------------------------

    def monitor(self, target: Pid, watcher: Pid) -> int:
        """``watcher`` (local) gets one Down with the returned ref."""
        ref = next(self._refs)
        self._monitors[ref] = (target, watcher)
        self._watching.setdefault(watcher, {})[ref] = None
        if target.node == self.node:
            if target in self.processes:
                self._watched.setdefault(target, {})[(self.node, ref)] = None
            else:
                self._fire(ref, "noproc")
        elif not self.transmit(target.node, MonitorFrame(target, ref)):
            self._fire(ref, "noconnection")
        return ref

    def demonitor(self, ref: int) -> None:
        """No Down for ``ref`` is delivered after this."""
        entry = self._take_monitor(ref)
        if entry is None:
            return
        target, _ = entry
        if target.node == self.node:
            self._watched.get(target, {}).pop((self.node, ref), None)
        else:
            self.transmit(target.node, DemonitorFrame(target, ref))

    def _fire(self, ref: int, reason: str) -> None:
        entry = self._take_monitor(ref)
        if entry is not None:
            target, watcher = entry
            self.send(watcher, Down(ref, target, reason))

    def _take_monitor(self, ref: int) -> tuple[Pid, Pid] | None:
        entry = self._monitors.pop(ref, None)
        if entry is not None:
            watching = self._watching[entry[1]]
            del watching[ref]
            if not watching:
                del self._watching[entry[1]]
        return entry

    # -- links (called by the mesh) ----------------------------------------------------------------

    def link_up(self, node: str, incarnation: int) -> None:
        self._linked[node] = incarnation
        for pid in self._watchers:
            self.send(pid, NodeUp(node, incarnation))

    def link_down(self, node: str, reason: str) -> None:
        self._linked.pop(node, None)
        for ref in [ref for ref, (target, _) in self._monitors.items() if target.node == node]:
            self._fire(ref, "noconnection")
        for watchers in self._watched.values():
            for key in [key for key in watchers if key[0] == node]:
                del watchers[key]
        self._calls.link_down(node, reason)
        for pid in self._watchers:
            self.send(pid, NodeDownEvent(node, reason))

    def receive(self, node: str, frame: Frame) -> None:
        """One frame from a linked peer; a tick says nothing. Raises msgspec.DecodeError on
        nonsense; the mesh then drops the link.
        """
        if type(frame) is SendFrame:  # most frames are
            pid = frame.pid if frame.pid is not None else self._names.get(frame.name)
            receiver = None if pid is None else self.processes.get(pid)
            if receiver is not None:
                receiver.deliver(self.codec.decode(frame.payload))
            elif pid is not None and pid.incarnation != self.incarnation:
                self._tell_old(self.codec.decode(frame.payload), None, pid)
            return
        match frame:
            case CallFrame(pid, name, ref, caller, payload):
                self._receive_call(
                    node, pid if pid is not None else Name(self.node, name), ref, caller, payload
                )
            case ReplyFrame(ref, payload):
                self._calls.answer(ref, self.codec.decode(payload))
            case MonitorFrame(target, ref):
                if target in self.processes:
                    self._watched.setdefault(target, {})[(node, ref)] = None
                else:
                    self.transmit(node, DownFrame(ref, "noproc"))
            case DemonitorFrame(target, ref):
                self._watched.get(target, {}).pop((node, ref), None)
            case DownFrame(ref, reason):
                self._fire(ref, reason)

    def _receive_call(
        self, node: str, to: Address, ref: int, caller: Pid | None, payload: bytes
    ) -> None:
        incarnation = self._linked.get(node)

        def reply(answer: Message) -> None:
            # Refs begin anew with each life of a node: it may have another call of this ref now.
            if self._linked.get(node) == incarnation:
                self.transmit(node, ReplyFrame(ref, self.codec.encode(answer)))

        process = self._resolve(to)
        if process is None:
            if isinstance(to, Pid):
                self._tell_old(self.codec.decode(payload), caller, to)
            reply(Failed("noproc"))
        else:
            self._calls.deliver(process, self.codec.decode(payload), caller, reply)
