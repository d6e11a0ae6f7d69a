"""SimLoop: an asyncio event loop with virtual time and no selector.

Time is an integer of nanoseconds that jumps to the next timer whenever nothing is ready to run. The
ready queue is FIFO, as asyncio documents its own: other orders would be schedules that no real loop
can produce, and their failures false alarms. What varies from seed to seed is latency and faults.

Each callback belongs to a process (processes.py), found in its context. The callbacks of a dead
process are dropped, those of a paused one wait in order until it is resumed, its timers late, as
after SIGSTOP and SIGCONT.

Overridden are the methods that touch time, tasks or the outside; what the simulation does not have
(threads, file descriptors, subprocesses, signals) raises SimFence (fences.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from functools import partial
from heapq import heapify, heappop, heappush
from typing import Protocol, TypeVar

from shalott.cluster.sim.loop.fences import Fenced, SimDeadlock, SimLivelock, SimTimeLimit, watching
from shalott.cluster.sim.loop.processes import PROCESS, SimHandle, SimProcess
from shalott.cluster.sim.loop.schedule import Priorities
from shalott.cluster.sim.loop.tasks import SimFuture, SimTask, pinned
from shalott.cluster.sim.loop.trace import CHUNK_WORDS, Trace, describe_callback

T = TypeVar("T")

log = logging.getLogger("shalott.cluster.sim")

START_NS = 1_000_000_000_000  # not 0: code may take 0 for "never"
CALLBACKS_PER_INSTANT_MAX = 1_000_000
CANCELLED_TIMERS_MIN = 100  # fewer are not worth a sweep


class Network(Protocol):
    """What the loop hands connections to (network.py)."""

    async def create_connection(
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]: ...

    async def create_server(
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None,
        port: int,
        *,
        backlog: int,
        start_serving: bool,
    ) -> asyncio.AbstractServer: ...

    async def getaddrinfo(self, host: str, port: int) -> list[tuple[object, ...]]: ...

    def close(self) -> None: ...


class SimLoop(Fenced, asyncio.BaseEventLoop):
    """One simulation's loop. ``run`` it once.

    ``deadline_ns``: global virtual time at which SimTimeLimit is raised. ``callback_cost_ns``: how
    far each callback moves the time, so that overload shows. ``callbacks`` counts them; it may
    depend on the version of Python. ``interrupted`` is asked whenever time moves and raises what
    shall end the run.
    """

    # Of the base class, where they are private.
    _closed: bool
    _stopping: bool
    _check_closed: Callable[[], None]

    def __init__(
        self,
        *,
        trace: Trace | None = None,
        deadline_ns: int | None = None,
        callback_cost_ns: int = 0,
    ) -> None:
        super().__init__()
        super().set_debug(False)
        # False, in one call of a built-in: every task and every future asks.
        self.get_debug = bool  # type: ignore[method-assign]
        # A generator that was left half-way, as by a process that was killed: what is left of it
        # never runs, for when it would is chance.
        self._asyncgen_finalizer_hook = lambda agen: None
        self.now_ns = START_NS
        self.trace = trace if trace is not None else Trace()
        self.process: SimProcess | None = None
        self.network: Network | None = None
        self.deadline_ns = deadline_ns
        self.interrupted: Callable[[], None] | None = None
        self.callbacks = 0
        self.priorities: Priorities | None = None  # who goes first; None: who is due first
        self._cost_ns = callback_cost_ns
        self._ready: deque[SimHandle] = deque()
        self._timers: list[tuple[int, int, SimHandle]] = []
        self._timers_cancelled = 0
        self._seq = 0
        # In one call of a built-in, as ``get_debug``: most callbacks end a future.
        self.create_future = partial(SimFuture, loop=self)  # type: ignore[method-assign]
        self._objects = 0  # tasks and futures that have a number
        self._processes: list[SimProcess] = []
        self._muted = False

    # -- time --------------------------------------------------------------------------------------

    def time(self) -> float:
        """Seconds, by the clock of the process that is running."""
        process = self.process
        if process is None or process.clock is None:
            return self.now_ns / 1e9
        return process.clock.local_ns(self.now_ns) / 1e9

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: object,
        context: Context | None = None,
    ) -> SimHandle:
        process = self.process
        when_ns = round(when * 1e9)
        if process is not None and process.clock is not None:
            when_ns = process.clock.global_ns(when_ns)
        return self._set_timer(when_ns, callback, args, context)

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: object,
        context: Context | None = None,
    ) -> SimHandle:
        process = self.process
        delay_ns = round(delay * 1e9)
        if process is None or process.clock is None:
            when_ns = self.now_ns + delay_ns
        else:
            clock = process.clock
            when_ns = clock.global_ns(clock.local_ns(self.now_ns) + delay_ns)
        return self._set_timer(when_ns, callback, args, context)

    def call_at_ns(
        self,
        when_ns: int,
        callback: Callable[..., object],
        *args: object,
        process: SimProcess | None = None,
    ) -> SimHandle:
        """Run the callback at a global time, in the base context of ``process``."""
        seq = self._seq
        self._seq = seq + 1
        context = _NO_PROCESS if process is None else process.context
        handle = SimHandle(when_ns, seq, process, callback, args, context, self)
        if when_ns <= self.now_ns:
            self._ready.append(handle)
        else:
            heappush(self._timers, (when_ns, seq, handle))
        return handle

    def _set_timer(
        self,
        when_ns: int,
        callback: Callable[..., object],
        args: tuple[object, ...],
        context: Context | None,
    ) -> SimHandle:
        if self._closed:
            self._check_closed()
        if context is None:
            context, process = copy_context(), self.process
        else:
            process = context.get(PROCESS)
        seq = self._seq
        self._seq = seq + 1
        handle = SimHandle(when_ns, seq, process, callback, args, context, self, False, True)
        if when_ns <= self.now_ns:
            self._ready.append(handle)
        else:
            heappush(self._timers, (when_ns, seq, handle))
        return handle

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> SimHandle:
        if self._closed:
            self._check_closed()
        if context is None:
            context, process = copy_context(), self.process
        else:
            process = context.get(PROCESS)
        seq = self._seq
        self._seq = seq + 1
        handle = SimHandle(self.now_ns, seq, process, callback, args, context, self)
        self._ready.append(handle)
        return handle

    # -- tasks and futures -------------------------------------------------------------------------

    def next_number(self) -> int:
        self._objects += 1
        return self._objects

    def create_task(  # type: ignore[override]
        self,
        coro: Coroutine[object, object, T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> SimTask[T]:
        if self._closed:
            self._check_closed()
        self._objects = number = self._objects + 1
        task = SimTask(coro, loop=self, name=name or f"task-{number}", context=context)
        task.number = number
        process = self.process if context is None else context.get(PROCESS)
        if process is not None:
            process.keep(task)
        return task

    # -- connections -------------------------------------------------------------------------------

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        **unsupported: object,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        self._refuse(unsupported)
        assert self.network is not None
        return await self.network.create_connection(protocol_factory, host, port)

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int = 0,
        *,
        backlog: int = 100,
        start_serving: bool = True,
        **unsupported: object,
    ) -> asyncio.AbstractServer:
        self._refuse(unsupported)
        assert self.network is not None
        return await self.network.create_server(
            protocol_factory, host, port, backlog=backlog, start_serving=start_serving
        )

    async def getaddrinfo(self, host: str, port: int, **hints: object) -> object:  # type: ignore[override]
        assert self.network is not None
        return await self.network.getaddrinfo(host, port)

    # -- processes ---------------------------------------------------------------------------------

    def add_process(self, process: SimProcess) -> None:
        """Its unfinished tasks are kept until the end."""
        self._processes.append(process)

    def resume(self, process: SimProcess) -> None:
        """SIGCONT: what waited runs, in the order in which it was due."""
        if process.state != "dead":
            process.state = "running"
            parked, process.parked = process.parked, []
            self._ready.extend(parked)

    # -- running -----------------------------------------------------------------------------------

    def run(self, main: Coroutine[object, object, T], process: SimProcess) -> T:
        """Run ``main`` as ``process`` to its end; then the simulation is over and taken apart.

        The garbage collector rests meanwhile: when it runs depends on what the interpreter did
        before, and what it finds may have finalizers.
        """
        collecting = gc.isenabled()
        gc.disable()
        self.add_process(process)
        try:
            return self.run_part(main, process)
        finally:
            self.dismantle()
            if collecting:
                gc.enable()

    def run_part(self, main: Coroutine[object, object, T], process: SimProcess) -> T:
        """Run ``main`` to its end, in a simulation that goes on afterwards with the next part."""
        with watching(self), pinned():
            task = self.create_task(main, name="main", context=process.context)
            return self.run_until_complete(task)

    def _run_once(self) -> None:
        """Run until stopped: the whole loop, since nothing comes from outside."""
        ready = self._ready
        pop, cost_ns = ready.popleft, self._cost_ns
        budget = CALLBACKS_PER_INSTANT_MAX
        while True:
            while ready:
                handle = pop()
                if handle._cancelled:
                    continue
                process = handle.process
                if process is not None and process.state != "running":
                    if process.state != "dead":
                        process.parked.append(handle)
                    continue
                self.process = process
                try:
                    handle._context.run(handle._callback, *handle._args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    self._callback_failed(handle, error)
                if cost_ns:
                    self.now_ns += cost_ns
                budget -= 1
                if budget < 0:
                    raise _livelock(handle, self.now_ns)
            self.process = None
            self.callbacks += CALLBACKS_PER_INSTANT_MAX - budget
            budget = CALLBACKS_PER_INSTANT_MAX
            if self._stopping:
                return
            self._advance()

    def _advance(self) -> None:
        """Move time to the next timer, and make all that are due then ready; with priorities, to
        who goes next."""
        timers, ready = self._timers, self._ready
        if self._timers_cancelled > CANCELLED_TIMERS_MIN:
            self._sweep_timers()
            timers = self._timers
        while timers and timers[0][2]._cancelled:
            heappop(timers)
        chosen = None if self.priorities is None else self.priorities.next_of(timers)
        if chosen is None and not timers:
            raise SimDeadlock(
                f"at t={self.now_ns / 1e9:.3f}s nothing is ready to run and no timer is set"
            )
        if len(self.trace.words) >= CHUNK_WORDS:
            self.trace.end_chunk()
        now_ns = timers[0][0] if chosen is None else chosen.when_ns
        if now_ns < self.now_ns:  # callbacks that cost time have passed it
            now_ns = self.now_ns
        if self.deadline_ns is not None and now_ns > self.deadline_ns:
            raise SimTimeLimit(f"the simulation reached t={self.deadline_ns / 1e9:.3f}s")
        self.now_ns = now_ns
        if self.interrupted is not None:
            self.interrupted()
        if chosen is not None:
            ready.append(chosen)
            return
        while timers and timers[0][0] <= now_ns:
            ready.append(heappop(timers)[2])

    def _sweep_timers(self) -> None:
        """Drop cancelled timers if they are the most of all. In place: the order is kept by seq."""
        self._timers_cancelled = 0
        alive = [entry for entry in self._timers if not entry[2]._cancelled]
        if 2 * len(alive) < len(self._timers):
            heapify(alive)
            self._timers = alive

    def _callback_failed(self, handle: SimHandle, error: BaseException) -> None:
        if handle.process is None or not handle.process.fenced:
            raise error  # a fault of the simulation itself: it proves nothing any more
        what = describe_callback(handle._callback)
        self.call_exception_handler({"message": f"Exception in {what}", "exception": error})

    def call_exception_handler(self, context: dict[str, object]) -> None:
        """To the process's own handler; what happens while a run is taken apart is moot."""
        if self._muted:
            return
        process = self.process
        if process is not None and process.on_exception is not None:
            process.on_exception(context)
        else:
            super().call_exception_handler(context)

    def dismantle(self) -> None:
        """Close what was frozen or unfinished, in order of creation, and let nothing of it out."""
        self._muted = True
        self.process = None
        if self.network is not None:
            self.network.close()
        for process in self._processes:
            process.freeze()
            tasks, process.tasks = process.tasks, []
            for task in tasks:
                if task.done():
                    continue
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                with contextlib.suppress(BaseException):
                    task.get_coro().close()
        self._ready.clear()
        self._timers.clear()
        self._processes.clear()
        del self.create_future  # it holds the loop
        self.close()
        gc.collect(0)  # all that the run made is in the youngest generation: nothing was collected


def stood_still(loop: SimLoop, process: SimProcess, since_ns: int) -> None:
    """For a paused process no time has passed since then: what timers it had set come so much
    later."""
    lasted_ns = loop.now_ns - since_ns
    moved = [h for _, _, h in loop._timers if h.is_timer and h.process is process]
    parked = process.parked
    moved += [h for h in parked if h.is_timer and h.when_ns > since_ns]
    process.parked = [h for h in parked if not (h.is_timer and h.when_ns > since_ns)]
    kept = [
        entry for entry in loop._timers if not (entry[2].is_timer and entry[2].process is process)
    ]
    for handle in moved:
        handle.when_ns += lasted_ns
        kept.append((handle.when_ns, handle.seq, handle))
    heapify(kept)
    loop._timers = kept


def _livelock(last: SimHandle, now_ns: int) -> SimLivelock:
    return SimLivelock(
        f"{CALLBACKS_PER_INSTANT_MAX} callbacks at t={now_ns / 1e9:.3f}s and time does not"
        f" move; the last was {last!r}"
    )


_NO_PROCESS = Context()
