"""Triggers: what a fault waits for before it comes (``Trigger`` in core/plan.py).

Where a world tells of events when they happen (the simulation), nothing is late. Where events can
be read while nodes write them, the files are looked at every ``EVENTS_EVERY_MS``; else nodes are
asked every ``OBSERVE_EVERY_MS``. Syncs are counted by the disk itself, which answers at once. How
late a trigger may have been noticed stands in its row of the history (f = ``trigger``).

A simulated node can be stopped in a moment of its own: in the midst of a call of its disk, or with
a message on its way. Who takes part stands still (``Standstill``) until the fault is made.

A node "becomes" master if it was not before: one look when the waiting begins says who is already.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import msgspec

from shalott.cluster.cluster import Cluster
from shalott.cluster.parts import (
    HoldsProcesses,
    Processes,
    ReadsDataFiles,
    TellsEventsAtOnce,
    WatchesCalls,
    WatchesMessages,
)
from shalott.cluster.system import (
    EventRow,
    NamesMessages,
    Observation,
    System,
    WritesEvents,
    group_names,
)
from shalott.core.errors import HarnessError
from shalott.core.plan import Trigger

CHANGES = ("role", "epoch", "set")  # a first look says what it was before
EVENTS_EVERY_MS = 50
OBSERVE_EVERY_MS = 100

Observe = Callable[[str], Awaitable[Mapping[str, object]]]  # {} if the node can't be asked
# (where it happens, who takes part in it, what it is): whether these stand still
TellOf = Callable[[str, Sequence[str], str], bool]
OfFault = Callable[[int, str], Awaitable[None]]  # (its id, begun or ended): until it has


@dataclass(frozen=True, slots=True)
class Fired:
    """What a trigger was waiting for, and how it was noticed. ``late_ms``: it happened at most so
    long before; None where it is unknown."""

    node: str
    what: str
    noticed_by: str
    late_ms: float | None


class Standstill:
    """The nodes that stand still for one fault, from its trigger's moment until it is made."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._nodes: list[str] = []

    def hold(self, *nodes: str) -> None:
        """Harmless where no node can be held: such a plan is refused before boot."""
        for node in nodes:
            if isinstance(self._processes, HoldsProcesses):
                self._processes.hold(node)
                self._nodes.append(node)

    def end(self) -> None:
        """Safe to call twice."""
        nodes, self._nodes = self._nodes, []
        for node in nodes:
            if isinstance(self._processes, HoldsProcesses):
                self._processes.let_go(node)


@dataclass(slots=True)
class Matcher:
    """What counts as it. It keeps what was so before, since becoming something is a change."""

    trigger: Trigger
    group_of: Callable[[str], str] = str  # of what events tell
    _masters: dict[tuple[str, str], bool] = field(default_factory=dict)  # by node and group
    _running: dict[str, bool] = field(default_factory=dict)  # synchronisations, by group
    _sets: dict[tuple[str, ...], tuple[str, ...]] = field(default_factory=dict)
    _roles: dict[tuple[str, str], str] = field(default_factory=dict)  # by node and group
    _epochs: dict[str, int] = field(default_factory=dict)  # by group

    def of_event(self, node: str, event: EventRow) -> str:
        """What it is that has happened, in words; "" if it is nothing that is waited for."""
        kind, group = str(event["kind"]), self.group_of(str(event["group"]))
        role = str(event.get("role") or "")
        detail = event.get("detail") or {}
        if not self._is_wanted(node, group):
            return ""
        if self.trigger.kind == "event":
            fits = kind == self.trigger.what and self.trigger.role in ("", role)
            return _words(f"event {kind}", group, role) if fits else ""
        if self.trigger.what == "epoch":
            return self._epoch(group, int(event.get("epoch") or 0))
        if self.trigger.what == "role":
            return self._role(node, group, role) if kind == "role" and group else ""
        if self.trigger.what == "master":
            changed = kind == "role" and bool(group)
            return self._master(node, group, role == "master") if changed else ""
        if self.trigger.what == "synchronising":
            told = {"sync_started": True, "sync_done": False}.get(kind)
            return self._synchronising(group, told) if told is not None else ""
        if kind != "set_changed":
            return ""
        if self.trigger.what == "set":
            return _words("the set changed", group)
        if detail.get("removed"):
            return _words(f"the set lost {detail['removed']}", group)
        own = detail.get("set")
        return self._shrinks(("event", node, group), group, own) if isinstance(own, list) else ""

    def of_answer(self, node: str, answer: Observation) -> str:
        """The same of what a node says when it is asked."""
        if self.trigger.kind == "event":
            return ""
        found = ""
        for claim in answer.get("claims") or ():
            group, role = str(claim["group"]), str(claim.get("role") or "")
            if not self._is_wanted(node, group):
                continue
            if self.trigger.what == "epoch":
                found = self._epoch(group, int(claim.get("epoch") or 0)) or found
            elif self.trigger.what == "role":
                found = self._role(node, group, role) or found
            elif self.trigger.what == "master":
                found = self._master(node, group, role == "master", is_look=True) or found
            elif role == "master" and self.trigger.what == "synchronising":
                found = self._synchronising(group, claim.get("state") == "syncing") or found
            elif role == "master":
                members = list(claim.get("synchronised") or ())
                found = self._shrinks(("answer", group), group, members) or found
        return found

    def _is_wanted(self, node: str, group: str) -> bool:
        return self.trigger.node in ("", node) and self.trigger.group in ("", group)

    def _master(self, node: str, group: str, is_so: bool, *, is_look: bool = False) -> str:
        """The first look at a node says what it was before."""
        before = self._masters.get((node, group), is_look)
        self._masters[node, group] = is_so
        return _words(f"{node} became master", group) if is_so and not before else ""

    def _role(self, node: str, group: str, role: str) -> str:
        """A node tells its role when it has changed, or when it starts."""
        before = self._roles.get((node, group))
        self._roles[node, group] = role
        return _words(f"{node} became {role or 'none'}", group) if role != before else ""

    def _epoch(self, group: str, epoch: int) -> str:
        """The first that is heard of a group says what it was before."""
        before = self._epochs.get(group, epoch)
        self._epochs[group] = max(before, epoch)
        return _words(f"epoch {epoch}", group) if epoch > before else ""

    def _synchronising(self, group: str, is_so: bool) -> str:
        before = self._running.get(group, False)
        self._running[group] = is_so
        return _words("a synchronisation runs", group) if is_so and not before else ""

    def _shrinks(self, whose: tuple[str, ...], group: str, members: list[object]) -> str:
        before, now = self._sets.get(whose, ()), tuple(map(str, members))
        self._sets[whose] = now
        gone = "+".join(sorted(member for member in before if member not in now))
        if self.trigger.what == "set":
            return _words("the set changed", group) if before and before != now else ""
        return _words(f"the set lost {gone}", group) if gone else ""


def _words(what: str, group: str, role: str = "") -> str:
    return what + (f" of {group}" if group else "") + (f" as {role}" if role else "")


class TriggerWatch:
    """Waits for the triggers of one run."""

    def __init__(
        self,
        cluster: Cluster,
        system: System,
        observe: Observe,
        now_ns: Callable[[], int],
        of_fault: OfFault,
    ) -> None:
        self._of_fault = of_fault
        self._cluster = cluster
        self._system = system
        self._observe = observe
        self._now_ns = now_ns

    async def wait(self, trigger: Trigger, still: Standstill) -> Fired | None:
        """What fired it; None if nothing did in its time. Raises HarnessError where this world
        can't wait for it. ``still``: has who takes part stand still, if the trigger has a
        moment."""
        if trigger.kind == "syncs":
            return await self._syncs(trigger)
        if trigger.kind == "fault":
            return await self._fault(trigger)
        if trigger.fault:
            await self._of_fault(trigger.fault, "begun")
        if trigger.kind in ("disk", "message"):
            waiting: Awaitable[Fired] = self._moment(trigger, still)
        else:
            waiting = _Waiting(trigger, self, self._cluster.nodes, still).fired()
        try:
            async with asyncio.timeout(trigger.within_ms / 1000):
                return await waiting
        except TimeoutError:
            return None

    async def _moment(self, trigger: Trigger, still: Standstill) -> Fired:
        """In a call of a disk, or with a message on its way."""
        fired: asyncio.Future[Fired] = asyncio.get_running_loop().create_future()
        left = trigger.count

        def tell(node: str, ends: Sequence[str], what: str) -> bool:
            nonlocal left
            left -= 1
            if left != 0 or fired.done():
                return False
            still.hold(*ends)
            fired.set_result(Fired(node, what, "the world, at once", 0.0))
            return True

        watch = self._watch_disks if trigger.kind == "disk" else self._watch_messages
        stops = list(watch(trigger, tell))
        try:
            return await fired
        finally:
            for stop in stops:
                stop()

    def _watch_disks(self, trigger: Trigger, tell: TellOf) -> Iterator[Callable[[], None]]:
        disks = self._cluster.disks
        if not isinstance(disks, WatchesCalls):
            raise HarnessError(f"the {self._cluster.backend} cluster can't watch disks")
        for node in (trigger.node,) if trigger.node else self._cluster.nodes:
            own = partial(tell, node, (node,))
            yield disks.watch_calls(node, trigger.moment, trigger.what, trigger.files, own)

    def _watch_messages(self, trigger: Trigger, tell: TellOf) -> Iterator[Callable[[], None]]:
        links, system, nodes = self._cluster.links, self._system, self._cluster.nodes
        if not isinstance(links, WatchesMessages) or not isinstance(system, NamesMessages):
            raise HarnessError(f"messages of {system.name} can't be watched here")
        for sender in (trigger.sender,) if trigger.sender else nodes:
            for receiver in (trigger.node,) if trigger.node else nodes:
                if sender != receiver:
                    link, moment = (sender, receiver), trigger.moment
                    own = partial(tell, sender if moment == "sent" else receiver, link)
                    reader_of = system.message_reader
                    yield links.watch_messages(link, moment, trigger.what, reader_of, own)

    async def _fault(self, trigger: Trigger) -> Fired | None:
        try:
            async with asyncio.timeout(trigger.within_ms / 1000):
                await self._of_fault(trigger.fault, trigger.what)
        except TimeoutError:
            return None
        return Fired("", f"fault {trigger.fault} has {trigger.what}", "the nemesis, at once", 0.0)

    async def _syncs(self, trigger: Trigger) -> Fired | None:
        """Of several disks the first one counts. A real disk's answer takes a moment, in which its
        node goes on; how long is not measured."""
        cluster = self._cluster
        late_ms = 0.0 if isinstance(cluster.files, TellsEventsAtOnce) else None
        if cluster.parts.disks is None:
            raise HarnessError(f"the {cluster.backend} cluster can't wait for syncs")
        nodes = [trigger.node] if trigger.node else cluster.nodes
        tasks = {
            node: asyncio.create_task(
                cluster.disks.await_syncs(node, trigger.count, trigger.within_ms),
                name=f"syncs of {node}",
            )
            for node in nodes
        }
        try:
            pending = list(tasks.values())
            while pending:
                await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for node, task in tasks.items():
                    if task in pending and task.done():
                        pending.remove(task)
                        if task.result():
                            what = f"{trigger.count} syncs of {node}"
                            return Fired(node, what, "its disk, at once", late_ms)
            return None
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)


class _Waiting:
    """For one trigger of the kinds that nodes tell."""

    def __init__(
        self, trigger: Trigger, watch: TriggerWatch, nodes: tuple[str, ...], still: Standstill
    ) -> None:
        self._trigger = trigger
        self._still = still
        self._cluster, self._system = watch._cluster, watch._system
        self._observe, self._now_ns = watch._observe, watch._now_ns
        self._nodes = nodes
        self._matcher = Matcher(trigger, group_names(watch._system))
        self._left = trigger.count
        self._fired: Fired | None = None
        self._done = asyncio.Event()

    async def fired(self) -> Fired:
        files, system = self._cluster.files, self._system
        if isinstance(system, WritesEvents) and isinstance(files, TellsEventsAtOnce):
            stop = files.watch_events(self._at_once)
            try:
                await self._look("the first look", None)
                await self._done.wait()
            finally:
                stop()
        elif isinstance(system, WritesEvents) and isinstance(files, ReadsDataFiles):
            await self._follow(files, system.events_file)
        elif self._trigger.kind == "event":
            raise HarnessError(f"events of {system.name} can't be read here while it runs")
        else:
            await self._ask()
        assert self._fired is not None
        return self._fired

    def _at_once(self, node: str, event: Mapping[str, object]) -> None:
        self._count(node, self._matcher.of_event(node, event), "an event, at once", 0.0)

    def _count(self, node: str, what: str, noticed_by: str, late_ms: float | None) -> None:
        if not what or self._fired is not None:
            return
        self._left -= 1
        if self._left == 0:
            if self._trigger.moment:
                self._still.hold(node)
            self._fired = Fired(node, what, noticed_by, late_ms)
            self._done.set()

    async def _look(self, how: str, late_ms: float | None) -> None:
        """Ask every node once. What was so before the waiting began may have been for long."""
        if self._trigger.kind == "event":
            return
        answers = await asyncio.gather(*(self._observe(node) for node in self._nodes))
        is_known = self._trigger.what not in CHANGES or late_ms is not None
        for node, answer in zip(self._nodes, answers, strict=True):
            what = self._matcher.of_answer(node, answer)
            self._count(node, what if is_known else "", how, late_ms)

    async def _ask(self) -> None:
        how = f"asking every {OBSERVE_EVERY_MS} ms"
        since_ns: int | None = None
        while not self._done.is_set():
            asked_ns = self._now_ns()
            late_ms = None if since_ns is None else (asked_ns - since_ns) / 1e6
            await self._look(how if since_ns is not None else "the first look", late_ms)
            since_ns = asked_ns
            await self._pause(OBSERVE_EVERY_MS)

    async def _follow(self, data: ReadsDataFiles, path: str) -> None:
        how = f"the file of events, read every {EVENTS_EVERY_MS} ms"
        files = {node: _Lines() for node in self._nodes}
        for node, lines in files.items():
            lines.add(await _read(data, node, path, 0))
        since_ns = self._now_ns()
        await self._look("the first look", None)
        while not self._done.is_set():
            now_ns = self._now_ns()
            for node, lines in files.items():
                for event in lines.add(await _read(data, node, path, lines.offset)):
                    what = self._matcher.of_event(node, event)
                    self._count(node, what, how, (self._now_ns() - since_ns) / 1e6)
            since_ns = now_ns
            await self._pause(EVENTS_EVERY_MS)

    async def _pause(self, time_ms: float) -> None:
        if not self._done.is_set():
            await asyncio.sleep(time_ms / 1000)


@dataclass(slots=True)
class _Lines:
    """A node's file of events, as far as it was read: ``offset`` bytes of it."""

    offset: int = 0
    _is_found: bool = False
    _rest: bytes = b""

    def add(self, more: bytes | None) -> list[dict[str, object]]:
        """The events whose lines are whole now. What is there when the node can be looked into for
        the first time is old, and None says that it can't be now."""
        if more is None:
            return []
        self.offset += len(more)
        if not self._is_found:
            self._is_found, self._rest = True, more.rpartition(b"\n")[2]
            return []
        *whole, self._rest = (self._rest + more).split(b"\n")
        found = []
        for line in whole:
            try:
                found.append(msgspec.json.decode(line, type=dict[str, object]))
            except msgspec.DecodeError:
                continue  # a torn line: a node that was killed left it
        return found


async def _read(data: ReadsDataFiles, node: str, path: str, offset: int) -> bytes | None:
    """None of a node that can't be looked into now."""
    try:
        return await data.read(node, path, offset)
    except HarnessError:
        return None
