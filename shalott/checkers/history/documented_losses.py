"""Which loss that a manual documents (core/documented_loss.py) a run of lost messages was.

Each part of what the manual describes must be seen in faults, events and polls, as of the windows
of mirrored queues (checkers/queues/loss_windows.py): the fault, whom it hit, that the messages were
acknowledged when it takes messages, and who was master afterwards. Where nodes tell of no
master, no way of loss that asks for one explains anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shalott.checkers.history.faults import Fault, Surroundings
from shalott.checkers.history.tenures import (
    NodeEvent,
    Tenure,
    event_tenures,
    observed_tenures,
    read_events,
)
from shalott.core.documented_loss import DocumentedLoss
from shalott.core.history import History

S = 1_000_000_000
SLACK_NS = S  # an acknowledgement may be recorded so much after what made it worthless
UNHEARD_NS = 3 * S  # so long a master that was not asked, or did not answer, is taken for one still
NOTICED_NS = 30 * S  # how long after a fault's end another master may take its place because of it


@dataclass(frozen=True, slots=True)
class LossScene:
    """What is known of a run besides its clients' operations. ``nodes``: all that were asked."""

    around: Surroundings
    tenures: Sequence[Tenure]

    @staticmethod
    def read(history: History, around: Surroundings) -> LossScene:
        return LossScene.of(read_events(history), around)

    @staticmethod
    def of(events: Sequence[NodeEvent], around: Surroundings) -> LossScene:
        told = (*event_tenures(events, around), *observed_tenures(around.observations))
        return LossScene(around, told)

    @property
    def nodes(self) -> set[str]:
        asked = {seen.node for seen in self.around.observations}
        return asked | {node for fault in self.around.injected for node in fault.nodes}

    def masters_at(self, at_ns: int) -> list[Tenure]:
        return [
            tenure
            for tenure in self.tenures
            if tenure.begin_ns <= at_ns + SLACK_NS and tenure.end_ns >= at_ns - UNHEARD_NS
        ]

    def succeeded(self, master: Tenure, fault: Fault) -> bool:
        """Whether another node began to be master of the same after the fault had hit that one."""
        last_ns = fault.end_ns + NOTICED_NS
        return any(
            (other.group, other.node != master.node) == (master.group, True)
            and fault.effective_ns - SLACK_NS <= other.begin_ns <= last_ns
            for other in self.tenures
        )


@dataclass(frozen=True, slots=True)
class Documented:
    """``steps``: what was seen, in words, with the operation that shows it."""

    loss: DocumentedLoss
    text: str
    operation: int
    steps: tuple[dict[str, object], ...]


@dataclass(frozen=True, slots=True)
class Stretch:
    """When lost messages were acknowledged, the first and the last of them, and by whom if that is
    known."""

    begin_ns: int
    end_ns: int
    by: tuple[str, ...] = ()


def documented_loss(
    stretch: Stretch, losses: Sequence[DocumentedLoss], scene: LossScene
) -> Documented | None:
    """The first of them of which everything is seen."""
    for loss in losses:
        for found in _seen(loss, stretch, scene):
            return found
    return None


def in_detail(losses: Sequence[DocumentedLoss], names: Sequence[str]) -> dict[str, dict[str, str]]:
    """What results keep of those that were seen: a report knows no more of them."""
    return {
        loss.name: {"text": loss.text, "manual": loss.manual, "closed-by": loss.closed_by}
        for loss in losses
        if loss.name in names
    }


def _seen(loss: DocumentedLoss, stretch: Stretch, scene: LossScene) -> Iterator[Documented]:
    faults = [
        fault
        for fault in scene.around.injected
        if set(loss.effects) & set(fault.effects)
        and not set(loss.but_not) & set(fault.effects)
        and _takes(loss, fault, stretch)
    ]
    if loss.hits == "master":
        for fault in faults:
            if master := _master_hit(loss, fault, stretch, scene):
                yield _found(loss, fault, f"{master} was master, and fault {fault.name} hit it")
        return
    hit = {node for fault in faults for node in fault.nodes}
    nodes = scene.nodes
    wanted = len(nodes) if loss.hits == "all" else len(nodes) // 2 + 1
    if faults and len(hit) >= wanted:
        names = " and ".join(fault.name for fault in faults)
        yield _found(loss, faults[0], f"fault {names} hit {len(hit)} of {len(nodes)} nodes")


def _takes(loss: DocumentedLoss, fault: Fault, stretch: Stretch) -> bool:
    """Whether it takes what was acknowledged at that time, by the manual's word."""
    last_ns = fault.end_ns + round(loss.after_ms * 1e6)
    if fault.takes_processes:
        last_ns = fault.effective_ns
    if stretch.end_ns > last_ns + SLACK_NS:
        return False
    if loss.before_ms is None:
        return True
    return stretch.begin_ns >= fault.invoke_ns - round(loss.before_ms * 1e6) - SLACK_NS


def _master_hit(loss: DocumentedLoss, fault: Fault, stretch: Stretch, scene: LossScene) -> str:
    """ "": no master whom it hit was, or was not, followed as the window asks."""
    for master in scene.masters_at(fault.effective_ns):
        touched = master.node in fault.nodes or any(master.node in link for link in fault.links)
        is_other = loss.before_ms is not None and stretch.by and master.node not in stretch.by
        if not touched or is_other:
            continue
        if loss.successor == "any" or scene.succeeded(master, fault) == (
            loss.successor == "another"
        ):
            return master.node
    return ""


def _found(loss: DocumentedLoss, fault: Fault, hit: str) -> Documented:
    steps: list[dict[str, object]] = [{"says": hit, "operation": fault.index}]
    age = "" if loss.before_ms is None else f", at most {loss.before_ms / 1000:g} s before it"
    steps.append({"says": f"what is lost had been acknowledged{age}", "operation": fault.index})
    if loss.successor != "any":
        who = "another node" if loss.successor == "another" else "no other node"
        steps.append({"says": f"{who} became master in its place", "operation": fault.index})
    return Documented(loss, f"fault {fault.name}; {loss.manual}", fault.index, tuple(steps))
