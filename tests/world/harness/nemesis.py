"""A cluster, a system and a recorder in memory, for the tests of the nemesis runner.

The fake cluster keeps to the contract of cluster/cluster.py and fails loudly where a real backend
would: killing a dead node, pausing a paused one, resuming what runs. Its defects can be planted.
A node in ``gives_up`` ends itself as soon as its disk fails, and when it starts on a bad one.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from shalott.cluster.nodes import (
    PLENTY,
    SOUND_DISK,
    DiskFaults,
    Endpoint,
    LinkShape,
    NodeStatus,
    Shortage,
)
from shalott.core.errors import Definite, HarnessError, Indefinite, MissingCapability
from shalott.core.history import EMPTY_EVENTS, HISTORY_SCHEMA, History
from shalott.core.op import Completion, Invocation
from shalott.core.plan import (
    ClusterPlan,
    FaultAction,
    GatePlan,
    Plan,
    SimPlan,
    SystemPlan,
    WorkloadPlan,
)

NODES = ("n1", "n2", "n3")
pa.array([0])  # the first array asks for pandas: no module is loaded in a simulation


class FakeCluster:
    """Nodes as words and links as counts. It is its own processes, links and files."""

    backend = "fake"
    capabilities = frozenset(
        {
            *("kill", "stop", "pause", "cut", "cut-one-way", "delay", "throttle", "wipe", "power"),
            *("jitter", "duplicate", "reorder", "corrupt"),
            *("clock", "loss", "disk-slow", "disk-full", "disk-error", "disk-short"),
            *("disk-corrupt", "cut-clients", "upgrade", "limit-cpu", "limit-memory"),
            *("limit-files", "limit-processes", "fill-tmp", "stop-process"),
        }
    )

    def __init__(self, nodes: Sequence[str] = NODES) -> None:
        self.nodes = tuple(nodes)
        self.left_down: list[str] = []
        self.states = dict.fromkeys(self.nodes, "running")
        self.cuts: Counter[tuple[str, str]] = Counter()
        self.calls: list[str] = []
        self.cut_does_nothing = False
        self.mend_does_nothing = False
        self.kill_does_nothing = False
        self.stop_does_nothing = False
        self.image_ids = dict.fromkeys(nodes, "id of old")
        self.change_image_does_nothing = False
        self.cuts_both_ways = False
        self.shapes: dict[tuple[str, str], LinkShape] = {}
        self.shape_does_nothing = False
        self.clients_cut: tuple[tuple[str, str], ...] = ()
        self.client_cuts_do_nothing = False
        self.client_cuts_stay = False
        self.clock_settings = dict.fromkeys(
            nodes, (0.0, 0.0, 0)
        )  # offset ms, drift ppm, since when
        self.clock_does_nothing = False
        self.disk_settings = dict.fromkeys(nodes, SOUND_DISK)
        self.disk_does_nothing = False
        self.shortages = dict.fromkeys(nodes, PLENTY)
        self.shortage_does_nothing = False
        self.gives_up: set[str] = set()
        self.rotten: set[str] = set()
        self.exit_codes: dict[str, int] = {}
        self.power_does_nothing = False
        self.start_is_idempotent = False
        self.broken: set[str] = set()  # calls that raise
        self.lacking: set[str] = set()  # calls that this world can't do
        self.changed = asyncio.Event()
        self.processes = self.links = self.files = self
        self.clocks = SimpleNamespace(
            set=self.set_clock, offset_ms=self.clock_offset_ms, error_ms=0.0
        )
        self.disks = SimpleNamespace(set=self.set_disk, faults=self.disk_faults)
        self.resources = SimpleNamespace(set=self.set_shortage, seen=self.shortage)
        self.images = SimpleNamespace(
            find=self.image_id, change=self.change_image, made_from=self.made_from
        )
        self.parts = SimpleNamespace(disks=None)

    def _call(self, name: str, node: str = "") -> None:
        self.calls.append(f"{name} {node}".strip())
        self.changed.set()
        if name in self.broken:
            raise HarnessError(f"{name} {node}: the backend is broken")
        if name in self.lacking:
            raise MissingCapability(f"the fake cluster can't {name}")

    def _move(self, node: str, allowed: Sequence[str], to: str) -> None:
        if self.states[node] not in allowed:
            raise HarnessError(f"{node} is {self.states[node]}, it can't become {to}")
        self.states[node] = to

    async def start(self, node: str) -> None:
        self._call("start", node)
        self._move(node, ["exited", "running"][: 1 + self.start_is_idempotent], "running")
        self._perhaps_give_up(node)

    async def stop(self, node: str, timeout_ms: int = 20000) -> None:
        self._call("stop", node)
        if not self.stop_does_nothing:
            self._move(node, ["running"], "exited")

    async def kill(self, node: str) -> None:
        self._call("kill", node)
        if not self.kill_does_nothing:
            self._move(node, ["running"], "exited")
            self.exit_codes[node] = 137

    async def power_off(self, node: str) -> None:
        self._call("power_off", node)
        if not self.power_does_nothing:
            self.states[node] = "exited"

    async def wipe(self, node: str) -> None:
        self._call("wipe", node)
        self._move(node, ["exited"], "exited")
        self.rotten.discard(node)

    def _perhaps_give_up(self, node: str) -> None:
        fails = (
            self.disk_settings[node].fail_sync
            or self.disk_settings[node].full
            or node in self.rotten
        )
        if fails and node in self.gives_up and self.states[node] == "running":
            self.states[node] = "exited"
            self.exit_codes[node] = 70

    async def image_id(self, image: str) -> str:
        return f"id of {image}"

    async def change_image(self, node: str, image: str) -> None:
        self._call("change_image", node)
        self._move(node, ["exited"], "exited")
        if not self.change_image_does_nothing:
            self.image_ids[node] = f"id of {image}"

    async def made_from(self, node: str) -> str:
        return self.image_ids[node]

    async def pause(self, node: str) -> None:
        self._call("pause", node)
        self._move(node, ["running"], "paused")

    async def resume(self, node: str) -> None:
        self._call("resume", node)
        self._move(node, ["paused"], "running")

    async def status(self, node: str) -> NodeStatus:
        code = self.exit_codes.get(node) if self.states[node] == "exited" else None
        return NodeStatus(state=self.states[node], exit_code=code)  # type: ignore[arg-type]

    async def cut(self, links: Sequence[tuple[str, str]]) -> None:
        self._call("cut")
        if not self.cut_does_nothing:
            self.cuts.update(links)
            if self.cuts_both_ways:
                self.cuts.update((b, a) for a, b in links)

    async def mend(self, links: Sequence[tuple[str, str]]) -> None:
        self._call("mend")
        if not self.mend_does_nothing:
            self.cuts.subtract(links)

    async def reach(self, source: str, destination: str, timeout_ms: int = 1000) -> bool:
        ends = self.states[source], self.states[destination]
        return "exited" not in ends and self.cuts[source, destination] <= 0

    def endpoint(self, node: str, port: str) -> Endpoint:
        return Endpoint(node, 1)

    async def set_client_cuts(self, links: Sequence[tuple[str, str]], ports: Sequence[str]) -> None:
        self._call("set_client_cuts", " ".join(f"{a}->{b}" for a, b in links))
        if not self.client_cuts_do_nothing or not links:
            self.clients_cut = tuple(links)
        if not links and self.client_cuts_stay:
            self.clients_cut = (("n2", "clients"),)

    async def client_cuts(self) -> Sequence[tuple[str, str]]:
        return self.clients_cut

    async def shape(self, source: str, destination: str, shape: LinkShape) -> None:
        self._call("shape", f"{source}->{destination}")
        if not self.shape_does_nothing:
            self.shapes[source, destination] = shape

    async def shape_of(self, source: str, destination: str) -> LinkShape:
        return self.shapes.get((source, destination), LinkShape())

    async def set_clock(self, node: str, *, offset_ms: float = 0, drift_ppm: float = 0) -> None:
        self._call("set_clock", node)
        if not self.clock_does_nothing:
            self.clock_settings[node] = offset_ms, drift_ppm, loop_ns()

    async def clock_offset_ms(self, node: str) -> float:
        offset_ms, drift_ppm, since_ns = self.clock_settings[node]
        return offset_ms + drift_ppm * (loop_ns() - since_ns) / 1e12

    async def set_disk(self, node: str, faults: DiskFaults | None) -> None:
        self._call("set_disk", node)
        if self.disk_does_nothing:
            return
        faults = faults or SOUND_DISK
        if faults.corrupt_bytes > self.disk_settings[node].corrupt_bytes:
            self.rotten.add(node)
        self.disk_settings[node] = faults
        self._perhaps_give_up(node)

    async def disk_faults(self, node: str) -> DiskFaults:
        return self.disk_settings[node]

    async def set_shortage(self, node: str, shortage: Shortage) -> None:
        self._call("set_shortage", node)
        if not self.shortage_does_nothing:
            self.shortages[node] = shortage
        if shortage.memory_left_mib and node in self.gives_up and self.states[node] == "running":
            self.states[node] = "exited"
            self.exit_codes[node] = 137

    async def shortage(self, node: str) -> Shortage:
        return self.shortages[node]

    async def heal(self) -> None:
        self._call("heal")
        self.cuts.clear()
        self.shapes.clear()
        for node, state in self.states.items():
            if state == "paused":
                self.states[node] = "running"

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a change that makes the condition true."""
        async with asyncio.timeout(5):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


class PlainSystem:
    """A system that can't be asked what only some can."""

    name = "plain"


class FakeSystem:
    """``claims`` by node; a node without an entry can't be asked."""

    name = "fake"
    ports: Mapping[str, int] = {"amqp": 1, "management": 2}

    def __init__(self, claims: Mapping[str, Sequence[Mapping[str, Any]]] | None = None) -> None:
        self.claims = dict(claims or {})
        self.settled = True
        self.asked_settled: list[tuple[tuple[str, ...], int]] = []
        self.queues: dict[str, str] = {}  # what an operator has, by name: its node
        self.keeps_dead_queues = False
        self.operated: list[str] = []  # what an operator or a stranger did
        self.has_no_slave = False
        self.restarted_heirs: tuple[str, ...] = ()  # of a failover
        self.members_by_node: dict[str, list[str]] = {node: list(NODES) for node in NODES}
        self.left_out: tuple[str, ...] = ()
        self.forgets_nothing = False  # and says that it did
        self.refuses_to_forget = False
        self.admits_nobody = False  # and says that it did
        self.refuses_to_admit = False
        self.stays_alone: set[str] = set()  # who joins and never runs with the others
        self.tied: set[str] = set()  # who can't leave

    async def declare_queue(self, cluster: object, node: str, queue: str) -> None:
        self.queues.setdefault(queue, node)

    async def delete_queue(self, cluster: object, node: str, queue: str, timeout_ms: int) -> None:
        if self.keeps_dead_queues:
            raise Indefinite(f"{node} did not answer within {timeout_ms} ms")
        del self.queues[queue]

    async def narrow_mirrors(self, cluster: object, by: str, holders: Sequence[str]) -> None:
        self.operated.append(f"mirrors on {' and '.join(holders)}")

    async def widen_mirrors(self, cluster: object, by: str) -> None:
        self.operated.append("mirrors everywhere")

    async def fail_over(self, cluster: object, old: str, restarted: list[str]) -> None:
        self.operated.append(f"fail over {old}")
        restarted += self.restarted_heirs
        if self.has_no_slave:
            raise Definite("there is no slave")

    async def rejoin(self, cluster: object, node: str) -> None:
        self.operated.append(f"rejoin {node}")

    async def report_nonsense(self, cluster: object, node: str) -> Callable[[], None]:
        self.operated.append(f"report to {node}")
        return lambda: self.operated.append(f"hang up on {node}")

    def why_not_leave(self, node: str) -> str:
        return "it is tied" if node in self.tied else ""

    async def members(self, cluster: object, node: str) -> Sequence[str]:
        return self.members_by_node[node]

    async def running_members(self, cluster: FakeCluster, node: str) -> Sequence[str]:
        return [
            other
            for other in self.members_by_node[node]
            if cluster.states[other] == "running" and other not in self.stays_alone
        ]

    async def forget(self, cluster: object, node: str, by: str) -> None:
        self.operated.append(f"{by} forgets {node}")
        if self.refuses_to_forget:
            raise Definite(f"{node} must be stopped")
        self.left_out = (*self.left_out, node)
        for members in self.members_by_node.values():
            if node in members and not self.forgets_nothing:
                members.remove(node)

    async def admit(self, cluster: object, node: str, by: str) -> None:
        self.operated.append(f"{by} admits {node}")
        if self.refuses_to_admit:
            raise Definite("there is no room")
        self.left_out = tuple(other for other in self.left_out if other != node)
        for members in self.members_by_node.values():
            if node not in members and not self.admits_nobody:
                members.append(node)

    async def observe(self, cluster: object, node: str) -> Mapping[str, Any]:
        if node not in self.claims:
            raise Indefinite(f"{node} does not answer")
        return {"claims": self.claims[node]}

    async def await_settled(self, cluster: object, queues: Sequence[str], timeout_ms: int) -> bool:
        self.asked_settled.append((tuple(queues), timeout_ms))
        return self.settled


def loop_ns() -> int:
    """The time of the loop that runs, virtual or not; before it runs, what it will begin with."""
    try:
        return round(asyncio.get_running_loop().time() * 1e9)
    except RuntimeError:
        return time.monotonic_ns()  # the clock of every loop that is not virtual


class MemoryRecorder:
    """Rows of a history, in memory."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self._completed = asyncio.Event()
        self._origin_ns = loop_ns()

    def now_ns(self) -> int:
        return loop_ns() - self._origin_ns

    def invoke(
        self, process: int, node: str, invocation: Invocation, due_ns: int | None = None
    ) -> int:
        self.rows.append(
            {
                "index": len(self.rows),
                "process": process,
                "node": node,
                "f": invocation.f,
                "key": invocation.key,
                "value": invocation.value,
                "type": "info",
                "invoke_ns": self.now_ns(),
                "extra": json.dumps(invocation.extra),
            }
        )
        return len(self.rows) - 1

    def complete(self, index: int, completion: Completion) -> None:
        row = self.rows[index]
        assert "complete_ns" not in row, f"operation {index} completed twice"
        row |= {
            "type": completion.type,
            "complete_ns": self.now_ns(),
            "error": completion.error,
        }
        self._completed.set()
        if completion.extra is not None:
            row["extra"] = json.dumps(completion.extra)

    def happened(self, process: int, node: str, f: str, completion: Completion) -> None:
        value, extra = completion.value, completion.extra
        asked = Invocation(f=f, key=completion.key or "", value=value, extra=extra)
        self.complete(self.invoke(process, node, asked), completion)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a completion that makes the condition true."""
        async with asyncio.timeout(5):
            while not condition():
                self._completed.clear()
                await self._completed.wait()

    def history(self) -> History:
        return History(ops=pa.Table.from_pylist(self.rows, HISTORY_SCHEMA), events=EMPTY_EVENTS)

    def of(self, f: str) -> list[dict[str, Any]]:
        return [row | {"extra": json.loads(row["extra"])} for row in self.rows if row["f"] == f]

    def faults(self) -> list[dict[str, Any]]:
        """The extras of the rows of faults, with the row's error."""
        found = []
        for row in self.rows:
            extra = json.loads(row["extra"])
            if row["process"] == -1 and "kind" in extra:
                found.append(extra | {"error": row.get("error"), "row": row})
        return found


def make_plan(
    *faults: FaultAction, time_limit_ms: int = 60_000, sim: SimPlan | None = None
) -> Plan:
    return Plan(
        name="fake",
        seed=1,
        time_limit_ms=time_limit_ms,
        cluster=ClusterPlan(backend="fake", nodes=NODES),
        system=SystemPlan(name="mirrored", profile="safe"),
        workload=WorkloadPlan(name="queue", rate_hz=100, concurrency=3),
        gates=GatePlan(),
        faults=tuple(faults),
        sim=sim,
    )
