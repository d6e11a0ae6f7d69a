"""Effects: what each family of faults does to the cluster, how it is undone, and what then shows.

For every fault this gives the calls that make it, the calls that undo it, and the checks that prove
either. All of it composes: cuts are counted, processes held (holds.py), settings laid over each
other (layers.py); so what a check expects is what all the faults in force add up to.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any

import msgspec

from shalott.cluster.base import Cluster, DiskFaults, LinkShape, System
from shalott.harness.core.errors import ClientError
from shalott.harness.core.plan import FaultAction
from shalott.harness.core.rng import Stream
from shalott.nemesis.holds import Holds, How
from shalott.nemesis.kinds import (
    FAILOVER,
    FATAL_DISK,
    REDECLARE,
    STRAY_REPORT,
    UNNOTICED_REDECLARE,
    WIPE,
    family_of,
)
from shalott.nemesis.layers import Layers, Link
from shalott.nemesis.proofs import Check, Seen

REACH_TIMEOUT_MS = 500
MIRRORED_WITHIN_MS = 1000
OPERATOR_TIMEOUT_MS = 10_000
SKEW_SPAN_S = 0.2  # between the two readings that show how fast a clock runs
SKEW_TOLERANCE = 0.1  # of the drift, and SKEW_TOLERANCE_PPM
SKEW_TOLERANCE_PPM = 5.0
OFFSET_TOLERANCE_MS = 1.0
SHAPE_TOLERANCE = 0.02  # tools round what they are told
# A node whose disk failed may still be about to give up when the disk is sound again.
GIVING_UP_S = 0.5

HOWS: Mapping[str, How] = {
    "kill": "kill",
    REDECLARE: "kill",
    UNNOTICED_REDECLARE: "power",
    FAILOVER: "kill",
    WIPE: "kill",
    "stop": "stop",
    "power": "power",
    "pause": "pause",
    "restart-all": "stop",
    "kill-all": "kill",
    "power-all": "power",
}

Doing = Coroutine[Any, Any, None]
WaitMs = Callable[[float], Awaitable[bool]]


class Effects:
    """Injects, heals and probes one run's faults. ``wait_ms`` ends early when the run is over."""

    def __init__(
        self,
        cluster: Cluster,
        system: System,
        holds: Holds,
        layers: Layers,
        *,
        now_ns: Callable[[], int],
        wait_ms: WaitMs,
    ) -> None:
        self._cluster = cluster
        self._system = system
        self._holds = holds
        self._layers = layers
        self._now_ns = now_ns
        self._wait_ms = wait_ms
        self._cuts: Counter[Link] = Counter()
        self._cutting: dict[int, tuple[Link, ...]] = {}  # by fault
        self._strays: dict[int, tuple[Callable[[], None], ...]] = {}  # by fault
        self.refusals: dict[int, str] = {}  # by fault: what an operator was not given, and why

    # -- doing

    def doings(self, action: FaultAction) -> list[Doing]:
        """What makes the fault, to be done all at once."""
        match family_of(action):
            case "partition":
                return [self._cut(action)]
            case "process" if action.kind in (REDECLARE, UNNOTICED_REDECLARE):
                return [self._redeclare(action)]
            case "process" if action.kind == FAILOVER:
                return [self._fail_over(action)]
            case "process" if action.kind == WIPE:
                return [self._wipe(action, node) for node in action.nodes or ()]
            case "process" if action.kind == STRAY_REPORT:
                return [self._report_nonsense(action, node) for node in action.nodes or ()]
            case "process":
                how = HOWS[action.kind]
                return [self._holds.hold(action.id, node, how) for node in action.nodes or ()]
            case "link":
                shape = link_shape(action)
                return [
                    self._layers.lay_shape(action.id, link, shape) for link in action.links or ()
                ]
            case "clock":
                return [self._set_clock(action, node) for node in action.nodes or ()]
            case "disk":
                return [self._spoil_disk(action, node) for node in action.nodes or ()]

    def undoings(self, action: FaultAction) -> list[Doing]:
        """What ends it, to be done all at once. Harmless for what was not made."""
        match family_of(action):
            case "partition":
                return [self._mend(action)] if action.id in self._cutting else []
            case "process" if action.kind == FAILOVER:
                return [self._rejoin(action, node) for node in action.nodes or ()]
            case "process" if action.kind == STRAY_REPORT:
                return [self._hang_up(action)]
            case "process":
                rng = Stream(action.seed, "jitter")
                delays_ms = [rng.between(0, action.jitter_ms) for _ in action.nodes or ()]
                pairs = zip(action.nodes or (), delays_ms, strict=True)
                return [self._release(action, node, delay_ms) for node, delay_ms in pairs]
            case "link":
                return [self._layers.lift_shape(action.id, link) for link in action.links or ()]
            case "clock":
                return [self._layers.lift_clock(action.id, node) for node in action.nodes or ()]
            case "disk":
                return [self._restore_disk(action, node) for node in action.nodes or ()]

    async def _cut(self, action: FaultAction) -> None:
        links = action.links or ()
        await self._cluster.cut(links)
        self._cutting[action.id] = links
        self._cuts.update(links)

    async def _mend(self, action: FaultAction) -> None:
        await self._cluster.mend(self._cutting[action.id])
        self._cuts.subtract(self._cutting.pop(action.id))

    async def _release(self, action: FaultAction, node: str, delay_ms: float) -> None:
        await self._wait_ms(delay_ms)
        await self._holds.release(action.id, node)

    async def _redeclare(self, action: FaultAction) -> None:
        """See nemesis/kinds.py. What the system refuses is no error of the fault."""
        (taken,) = action.nodes or ()
        home, queue = taken, f"operator.{action.id}"
        if action.kind == UNNOTICED_REDECLARE:
            others = [node for node in self._cluster.nodes if node != taken]
            home = Stream(action.seed, "home").choice(others)
        try:
            await self._system.declare_queue(self._cluster, home, queue)
            if home != taken:
                await self._wait_ms(MIRRORED_WITHIN_MS)
        except ClientError as error:
            self.refusals[action.id] = f"{queue} was not declared on {home}: {error}"
        await self._holds.hold(action.id, taken, HOWS[action.kind])
        running = [node for node in self._cluster.nodes if self._holds.state(node) == "running"]
        others = [node for node in running if node != home] or running
        if action.id in self.refusals or not others:
            return
        asked = Stream(action.seed, "asked").choice(others)
        try:
            await self._system.delete_queue(self._cluster, asked, queue, OPERATOR_TIMEOUT_MS)
            await self._system.declare_queue(self._cluster, asked, queue)
        except ClientError as error:
            self.refusals[action.id] = f"{queue} was not deleted and declared anew: {error}"

    async def _fail_over(self, action: FaultAction) -> None:
        """See nemesis/kinds.py. What the system refuses is no error of the fault."""
        (old,) = action.nodes or ()
        await self._holds.hold(action.id, old, HOWS[action.kind])
        try:
            await self._system.fail_over(self._cluster, old)
        except ClientError as error:
            self.refusals[action.id] = f"nobody took the place of {old}: {error}"

    async def _rejoin(self, action: FaultAction, node: str) -> None:
        await self._holds.release(action.id, node)
        if action.id in self.refusals or self._holds.state(node) != "running":
            return
        try:
            await self._system.rejoin(self._cluster, node)
        except ClientError as error:
            self.refusals[action.id] = f"{node} was not made a slave: {error}"

    async def _wipe(self, action: FaultAction, node: str) -> None:
        await self._holds.hold(action.id, node, HOWS[action.kind])
        await self._cluster.wipe(node)

    async def _report_nonsense(self, action: FaultAction, node: str) -> None:
        try:
            hang_up = await self._system.report_nonsense(self._cluster, node)
        except ClientError as error:
            self.refusals[action.id] = f"{node} takes no reports: {error}"
            return
        self._strays[action.id] = (*self._strays.get(action.id, ()), hang_up)

    async def _hang_up(self, action: FaultAction) -> None:
        for hang_up in self._strays.pop(action.id, ()):
            hang_up()

    async def _set_clock(self, action: FaultAction, node: str) -> None:
        if action.kind == "clock-jump":
            await self._layers.lay_clock(action.id, node, offset_ms=action.amount)
        else:
            await self._layers.lay_clock(action.id, node, drift_ppm=action.amount)

    async def _spoil_disk(self, action: FaultAction, node: str) -> None:
        if action.kind in FATAL_DISK:
            how: How = "rot" if action.kind == "disk-corrupt" else "disk"
            await self._holds.hold(action.id, node, how)
        await self._layers.lay_disk(action.id, node, disk_faults(action))

    async def _restore_disk(self, action: FaultAction, node: str) -> None:
        await self._layers.lift_disk(action.id, node)
        if action.kind in FATAL_DISK:
            await asyncio.sleep(GIVING_UP_S)
            await self._holds.release(action.id, node)

    # -- looking

    def made_checks(self, action: FaultAction) -> list[Check]:
        """What shows that the fault is in force, as far as it can be looked at now."""
        match family_of(action):
            case "partition":
                both = dict.fromkeys([*(action.links or ()), *_turned(action.links or ())])
                return [self._link_check(link) for link in both if not self._is_dead(link)]
            case "link":
                links = action.links or ()
                return [self._shape_check(link) for link in links if not self._is_dead(link)]
            case "process":
                return [self._status_check(node) for node in action.nodes or ()]
            case "clock":
                return [self._clock_check(action, node) for node in action.nodes or ()]
            case "disk":
                return [self._disk_check(node) for node in action.nodes or ()]

    def healed_checks(self, action: FaultAction) -> list[Check]:
        """What shows that it is gone, as far as other faults leave it healed."""
        links, nodes = action.links or (), action.nodes or ()
        match family_of(action):
            case "partition":
                return [self._link_check(link) for link in links]
            case "link":
                return [self._shape_check(link) for link in links]
            case "process":
                return [self._status_check(node) for node in nodes]
            case "clock":
                return [self._clock_check(action, node) for node in nodes]
            case "disk":
                checks = [self._disk_check(node) for node in nodes]
                if action.kind in FATAL_DISK:
                    checks += [self._status_check(node) for node in nodes]
                return checks

    def _link_check(self, link: Link) -> Check:
        async def look() -> Seen:
            return await self._cluster.reach(*link, REACH_TIMEOUT_MS)

        def reaches() -> Seen:
            return self._cuts[link] == 0

        return Check(link[0], f"reach {link[0]}->{link[1]}", look, reaches, moot=self._moot(link))

    def _shape_check(self, link: Link) -> Check:
        async def look() -> Seen:
            return _as_data(await self._cluster.link_shape(*link))

        def shape() -> Seen:
            return _as_data(self._layers.shape(link))

        text = f"shape {link[0]}->{link[1]}"
        return Check(link[0], text, look, shape, agrees=_shapes_agree, moot=self._moot(link))

    def _moot(self, link: Link) -> Callable[[], Awaitable[bool]]:
        async def moot() -> bool:
            return any([await self._holds.is_gone(node) for node in link])

        return moot

    def _is_dead(self, link: Link) -> bool:
        return any(self._holds.state(node) == "down" for node in link)

    def _status_check(self, node: str) -> Check:
        async def look() -> Seen:
            await self._holds.is_gone(node)  # which starts it if it has no excuse to be down
            state = (await self._cluster.status(node)).state
            return "down" if state in ("exited", "absent") else state

        def state() -> Seen:
            return self._holds.wanted(node)

        def agrees(seen: Seen, expected: Seen) -> bool:
            return seen == expected or (seen == "down" and self._holds.may_be_exited(node))

        return Check(node, f"status {node}", look, state, agrees=agrees)

    def _clock_check(self, action: FaultAction, node: str) -> Check:
        if action.kind == "clock-skew":
            return self._drift_check(node)

        async def look() -> Seen:
            return round(await self._cluster.clock_offset_ms(node), 3)

        def offset() -> Seen:
            return round(self._layers.offset_ms(node), 3)

        return Check(node, f"clock {node}", look, offset, agrees=_within(OFFSET_TOLERANCE_MS))

    def _drift_check(self, node: str) -> Check:
        async def look() -> Seen:
            first_ms, first_ns = await self._cluster.clock_offset_ms(node), self._now_ns()
            await asyncio.sleep(SKEW_SPAN_S)
            last_ms, last_ns = await self._cluster.clock_offset_ms(node), self._now_ns()
            return round((last_ms - first_ms) * 1e12 / (last_ns - first_ns), 1)

        def drift() -> Seen:
            return round(self._layers.drift_ppm(node), 1)

        agrees = _within(SKEW_TOLERANCE_PPM, SKEW_TOLERANCE)
        return Check(node, f"drift {node}", look, drift, agrees=agrees)

    def _disk_check(self, node: str) -> Check:
        async def look() -> Seen:
            return _as_data(await self._cluster.disk_faults(node))

        def faults() -> Seen:
            return _as_data(self._layers.disk(node))

        return Check(node, f"disk {node}", look, faults, agrees=_disks_agree)


def link_shape(action: FaultAction) -> LinkShape:
    """What a link fault's layer is."""
    kind = action.kind.removesuffix("-one-way")
    if kind == "loss":
        return LinkShape(loss=action.amount)
    if kind == "delay":
        return LinkShape(delay_ms=action.amount)
    assert kind == "clog"
    return LinkShape(rate_bytes_s=int(action.amount))


def disk_faults(action: FaultAction) -> DiskFaults:
    """What a disk fault's layer is."""
    return DiskFaults(
        slow_ms=action.amount if action.kind == "disk-slow" else 0,
        full=action.kind == "disk-full",
        fail_sync=action.kind == "disk-error",
        short=action.kind == "disk-short",
        corrupt_bytes=int(action.amount) if action.kind == "disk-corrupt" else 0,
    )


def _as_data(struct: msgspec.Struct) -> dict[str, Any]:
    data: dict[str, Any] = msgspec.to_builtins(struct)
    return data


def _within(least: float, share: float = 0) -> Callable[[Seen, Seen], bool]:
    def agrees(seen: Seen, expected: Seen) -> bool:
        assert isinstance(seen, int | float) and isinstance(expected, int | float)
        return abs(seen - expected) <= least + share * abs(expected)

    return agrees


def _shapes_agree(seen: Seen, expected: Seen) -> bool:
    assert isinstance(seen, dict) and isinstance(expected, dict)
    return all(
        abs(seen[name] - value) <= SHAPE_TOLERANCE * abs(value) for name, value in expected.items()
    )


def _disks_agree(seen: Seen, expected: Seen) -> bool:
    """A small disk may have had fewer bytes to rot than were asked for."""
    assert isinstance(seen, dict) and isinstance(expected, dict)
    rot = "corrupt_bytes"
    return {**seen, rot: seen[rot] > 0} == {**expected, rot: expected[rot] > 0}


def _turned(links: Iterable[Link]) -> list[Link]:
    return [(destination, source) for source, destination in links]
