"""What a fault waits for before it fires: its time, a settled cluster, its trigger."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import msgspec

from shalott.cluster.cluster import Cluster
from shalott.cluster.system import System
from shalott.core.errors import HarnessError
from shalott.core.op import NEMESIS, Completion, Invocation
from shalott.core.plan import FaultAction, Trigger
from shalott.nemesis.context import FAILURES
from shalott.nemesis.targets import THERE
from shalott.nemesis.trigger_words import OF_FAULTS, trigger_text
from shalott.nemesis.triggers import Fired, Standstill, TriggerWatch

if TYPE_CHECKING:
    from shalott.core.history import (
        Recorder,  # which loads pyarrow: planning asks what is waited for
    )

log = logging.getLogger("shalott.nemesis")

T = TypeVar("T")


class Skipped(Exception):
    """A fault that is not made, with the reason."""


class LoadTime:
    """The time of a run's load: what waits for it stops waiting when the load is over."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self.over = asyncio.Event()
        self._now_ns = now_ns
        self._origin_ns = 0

    def start(self) -> None:
        self._origin_ns = self._now_ns()

    def elapsed_ms(self) -> float:
        return (self._now_ns() - self._origin_ns) / 1e6

    async def wait_ms(self, time_ms: float) -> bool:
        """Whether that time passed; false if the load was over first."""
        try:
            async with asyncio.timeout(max(0.0, time_ms) / 1000):
                await self.over.wait()
        except TimeoutError:
            return not self.over.is_set()
        return False

    async def unless_over(self, awaitable: Coroutine[object, object, T]) -> tuple[bool, T | None]:
        """Whether it ended before the load, and its result."""
        task = asyncio.create_task(awaitable)
        over = asyncio.create_task(self.over.wait())
        try:
            await asyncio.wait((task, over), return_when=asyncio.FIRST_COMPLETED)
            return (True, task.result()) if task.done() else (False, None)
        finally:
            for pending in (task, over):
                pending.cancel()
            await asyncio.gather(task, over, return_exceptions=True)


class Milestones:
    """How far the faults of a run have come: which have begun, and which have ended."""

    def __init__(self, faults: Iterable[int]) -> None:
        self._reached = {(id, what): asyncio.Event() for id in faults for what in OF_FAULTS}
        self._never: dict[tuple[int, str], str] = {}

    def reach(self, fault: int, what: str) -> None:
        self._reached[fault, what].set()

    def give_up(self, fault: int, reason: str) -> None:
        """What it has not reached it never will; harmless if it has reached everything."""
        for what in OF_FAULTS:
            if not self._reached[fault, what].is_set():
                self._never[fault, what] = reason
                self._reached[fault, what].set()

    async def over(self, fault: int) -> None:
        """Until it has ended, or never will."""
        await self._reached[fault, "ended"].wait()

    async def wait(self, fault: int, what: str) -> None:
        """Until it has begun or ended. Raises HarnessError: it never will."""
        await self._reached[fault, what].wait()
        if (reason := self._never.get((fault, what))) is not None:
            raise HarnessError(f"fault {fault} never has {what}: {reason}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What must be so before a fault of one run fires."""

    cluster: Cluster
    system: System
    recorder: Recorder
    time: LoadTime
    triggers: TriggerWatch
    queues: tuple[str, ...]
    settle_wait_ms: int
    time_limit_ms: int

    async def await_settled(self, action: FaultAction) -> None:
        """Raise Skipped unless the cluster has synchronised, and there is still time. A node that
        is left down has not, and never will."""
        if down := self.cluster.left_down:
            raise Skipped(
                f"{', '.join(down)} can't start from damaged files; another loss of a node would"
                " have been ours"
            )
        ended, settled = await self.time.unless_over(
            self.system.await_settled(self.cluster, self.queues, self.settle_wait_ms)
        )
        if not ended:
            raise Skipped("the load is over")
        if not settled:
            raise Skipped(
                f"the cluster had not synchronised within {self.settle_wait_ms} ms; another loss "
                "of a node would have been ours"
            )
        if self.time.elapsed_ms() + action.duration_ms > self.time_limit_ms:
            raise Skipped("synchronising took so long that no time is left for it")

    async def await_trigger(
        self, action: FaultAction, when: Trigger, still: Standstill
    ) -> FaultAction:
        """The action with the time when its trigger fired, and the node where it did, if that is
        its target; Skipped if it did not. The row of the history begins with the waiting."""
        why, fired, fired_ms = await self._await(action, when, still)
        if fired is None:
            raise Skipped(why)
        if action.target == THERE:
            action = msgspec.structs.replace(action, nodes=(fired.node,))
        if not await self.time.wait_ms(when.delay_ms):
            raise Skipped("the load was over before the trigger's delay was")
        return msgspec.structs.replace(
            action, when=msgspec.structs.replace(when, fired_ms=fired_ms)
        )

    async def await_end(self, action: FaultAction, until: Trigger, left_ms: float) -> FaultAction:
        """Return when a fault in force is to end: when its trigger has fired, or when ``left_ms``
        are over; the action with the time when it fired. What can't be waited for any more ends it
        too: the rest of its sequence is not made."""
        within = msgspec.structs.replace(
            until, within_ms=max(1, min(until.within_ms, round(left_ms)))
        )
        still = Standstill(self.cluster.processes)
        try:
            _, fired, fired_ms = await self._await(action, within, still, ends=True)
        finally:
            still.end()
        if fired is None:
            return action
        await self.time.wait_ms(until.delay_ms)
        return msgspec.structs.replace(
            action, until=msgspec.structs.replace(until, fired_ms=fired_ms)
        )

    async def _await(
        self, action: FaultAction, when: Trigger, still: Standstill, *, ends: bool = False
    ) -> tuple[str, Fired | None, int]:
        """(why it did not fire, what did, when from the load's beginning on)."""
        text = trigger_text(when)
        extra: dict[str, object] = {
            "fault": action.id,
            "waits_for": text,
            "within_ms": when.within_ms,
        }
        extra |= {"ends": True} if ends else {}
        index = self.recorder.invoke(NEMESIS, when.node, Invocation(f="trigger", extra=extra))
        why, fired = f"its trigger ({text}) had not fired when the load was over", None
        try:
            ended, fired = await self.time.unless_over(self.triggers.wait(when, still))
            if ended:
                why = f"its trigger ({text}) did not fire within {when.within_ms} ms"
        except FAILURES as error:
            why = f"its trigger ({text}) can't be waited for: {error}"
        if fired is None:
            self.recorder.complete(
                index, Completion(type="info", error=why, extra={**extra, "fired": False})
            )
            return why, None, 0
        seen = {"by": fired.node, "seen": fired.what, "noticed_by": fired.noticed_by}
        extra |= {"fired": True, **seen, "late_ms_at_most": fired.late_ms}
        fired_ms = int(self.time.elapsed_ms())
        self.recorder.complete(index, Completion(type="ok", extra=extra))
        log.info("fault %d: %s", action.id, fired.what)
        return "", fired, fired_ms
