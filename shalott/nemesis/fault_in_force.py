"""FaultInForce: one fault from its injection to the proof that it is healed, and its row.

A fault that could not be proved, or that the backend could not make, says so in its row. What the
system refused to do for an operator took no effect, also if a probe saw one on its nodes. A node
that ended its own process because its disk failed is no error: it is started when the fault ends,
and the row says so.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from shalott.core.history import Recorder
from shalott.core.op import NEMESIS, Completion, Invocation
from shalott.core.plan import FaultAction
from shalott.nemesis.context import FAILURES, FaultContext
from shalott.nemesis.proofs import Prover
from shalott.nemesis.record import FAULTS, FaultRecord, Step
from shalott.nemesis.trigger_words import trigger_text

log = logging.getLogger("shalott.nemesis")

RETURN_TIMEOUT_S = 60.0  # how long a healed link's proof waits for nodes that other faults took


@dataclass(slots=True, kw_only=True)
class FaultInForce:
    """``begin`` one; then ``inject``, ``heal`` and ``complete`` it."""

    record: FaultRecord
    action: FaultAction
    ctx: FaultContext
    recorder: Recorder
    prover: Prover
    index: int  # its row
    text: str
    injected_ns: int = 0
    effective_ns: int | None = None
    healed_ns: int | None = None
    proved_effective: bool | None = None  # None: it could not be looked at yet
    proved_healed: bool = False
    refused: str = ""  # what the system did not do when it was injected
    given_up_before: dict[str, int] = field(default_factory=dict)  # by node, how often
    replaced_before: dict[str, int] = field(default_factory=dict)
    left_down_before: tuple[str, ...] = ()

    @classmethod
    def begin(
        cls, action: FaultAction, ctx: FaultContext, recorder: Recorder, prover: Prover
    ) -> FaultInForce:
        fault = cls(
            record=FAULTS.find(action.kind),
            action=action,
            ctx=ctx,
            recorder=recorder,
            prover=prover,
            index=recorder.invoke(NEMESIS, "", Invocation(f=action.kind, extra=_extra(action))),
            text=" ".join([action.kind, "+".join(action.nodes or ())]).strip(),
        )
        fault.left_down_before = tuple(ctx.cluster.left_down)
        for node in action.nodes or ():
            fault.given_up_before[node] = len(ctx.processes.exit_codes(node))
            fault.replaced_before[node] = ctx.processes.disks_replaced(node)
        log.info("fault %d: %s", action.id, fault.text)
        return fault

    async def inject(self, made: Callable[[], None]) -> None:
        """Make it, tell so, and prove that it took hold."""
        await self._step(self.record.inject)
        made()
        self.injected_ns = self.recorder.now_ns()
        took_hold_ns = self.ctx.took_hold_ns
        self.effective_ns = self.injected_ns if took_hold_ns is None else took_hold_ns
        self.refused = self.ctx.refused
        self.proved_effective = False if self.ctx.errors else await self._prove_effective()

    @property
    def lasted_ms(self) -> float:
        return (self.recorder.now_ns() - self.injected_ns) / 1e6

    async def heal(self) -> None:
        """Heal it and prove that it is gone."""
        if self.proved_effective is None:  # its nodes were down; perhaps they are back by now
            self.proved_effective = await self._prove_effective()
        await self._step(self.record.heal)
        self.healed_ns = self.recorder.now_ns()
        self.proved_healed = await self._prove_healed()

    async def _step(self, step: Step) -> None:
        """What the backend can't do is the fault's error, and the run goes on."""
        try:
            await step(self.ctx, self.action)
        except FAILURES as error:
            self.ctx.note(error)

    async def _prove_effective(self) -> bool | None:
        checks = self.record.effective(self.ctx, self.action)
        return await self.prover.prove(self.action.id, "effective", checks)

    async def _prove_healed(self) -> bool:
        """Prove it as far as other faults leave it healed; they may take nodes away meanwhile."""
        action, processes = self.action, self.ctx.processes
        checks = self.record.healed(self.ctx, action)
        if not action.links:
            return bool(await self.prover.prove(action.id, "healed", checks))
        ends = tuple(dict.fromkeys(node for link in action.links for node in link))
        proved = False
        for _ in range(3):
            if not await processes.await_up(ends, RETURN_TIMEOUT_S):
                return False
            before = processes.changes
            proved = bool(await self.prover.prove(action.id, "healed", checks))
            if proved or processes.changes == before:
                break
        return proved

    def complete(self) -> None:
        """Write the end of its row."""
        extra = {
            **_extra(self.action),
            **self.ctx.told,
            "effective_ns": self.effective_ns,
            "healed_ns": self.healed_ns,
            "proved_effective": bool(self.proved_effective) and not self.refused,
            "proved_healed": self.proved_healed,
        }
        if self.refused:
            extra["refused"] = self.refused
        elif self.ctx.refused:
            extra["refused_at_end"] = self.ctx.refused
        if self.record.may_exit:
            extra |= self._given_up()
        if self.proved_effective is None:
            extra["skipped"] = "its nodes were down throughout, so it changed nothing"
        error = "; ".join(dict.fromkeys(self.ctx.errors)) or None
        self.recorder.complete(self.index, Completion(type="info", error=error, extra=extra))
        log.info("fault %d ended: %s", self.action.id, self.text)

    def _given_up(self) -> dict[str, object]:
        """Which of the fault's nodes ended themselves meanwhile, and which needed a new disk, or
        were left down."""
        processes = self.ctx.processes
        codes = {
            node: processes.exit_codes(node)[before:]
            for node, before in self.given_up_before.items()
        }
        replaced = [
            node
            for node, before in self.replaced_before.items()
            if processes.disks_replaced(node) > before
        ]
        found: dict[str, object] = {
            "exited": {node: list(code) for node, code in codes.items() if code}
        }
        left_down = [
            node
            for node in self.ctx.cluster.left_down
            if node in codes and node not in self.left_down_before
        ]
        found |= {"replaced": replaced} if replaced else {}
        return found | ({"left_down": left_down} if left_down else {})


def record_skip(action: FaultAction, reason: str, recorder: Recorder) -> None:
    """The row of a fault that is not made."""
    extra = {
        **_extra(action),
        "effective_ns": None,
        "healed_ns": None,
        "proved_effective": False,
        "proved_healed": False,
        "skipped": reason,
    }
    index = recorder.invoke(NEMESIS, "", Invocation(f=action.kind, extra=extra))
    recorder.complete(index, Completion(type="info", error=f"skipped: {reason}", extra=extra))
    log.info("fault %d (%s) skipped: %s", action.id, action.kind, reason)


def _extra(action: FaultAction) -> dict[str, object]:
    told: dict[str, object] = {"amount": action.amount} if action.amount else {}
    if action.parameters:
        told["parameters"] = action.parameters
    if action.when is not msgspec.UNSET:
        told["trigger"] = trigger_text(action.when)
    return {
        "fault": action.id,
        "kind": action.kind,
        "target": action.target,
        "nodes": list(action.nodes or ()),
        "links": [list(link) for link in action.links or ()],
        "effects": list(FAULTS.find(action.kind).effects),
        **told,
    }
