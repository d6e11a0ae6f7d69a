"""What the nemesis and the flow left in a history: faults, phases and observations, as records.

Rows of process -1 are few, so they are read one by one. Their shapes are those of
docs/architecture.md section 6. Times are ns from the run's start.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
import pyarrow.compute as pc

from shalott.core.history import History
from shalott.core.op import NEMESIS
from shalott.core.plan import Effect

Decoded = dict[str, Any]  # a JSON object of a cell, as it came in: see decode_object

# What our own kinds did, by how their names begin: for rows that don't say it, as older ones.
_OF_OLD_KINDS: Mapping[str, tuple[Effect, ...]] = {
    "kill": ("ends-processes",),
    "stop": ("ends-processes", "in-order"),
    "restart": ("ends-processes", "in-order"),
    "failover": ("ends-processes",),
    "remove": ("ends-processes", "in-order", "leaves-cluster"),
    "add": ("empties-disk", "joins-cluster"),
    "replace": ("ends-processes", "empties-disk"),
    "rolling": ("ends-processes", "in-order"),
    "power": ("ends-processes", "loses-unsynced"),
    "wipe": ("ends-processes", "empties-disk"),
    "pause": ("suspends",),
    "suspend": ("suspends",),
    "partition": ("cuts-links",),
    "hold-back": ("cuts-links",),
    "client-cut": ("cuts-clients",),
    "cpu-starve": ("slows",),
    "memory-limit": ("starves",),
    "fd-exhaust": ("starves",),
    "fork-bomb": ("starves",),
    "tmp-full": ("starves",),
    "slow-node": ("troubles-disk",),
    "disk-slow": ("troubles-disk",),
    "disk-short": ("troubles-disk",),
    "disk-full": ("troubles-disk", "fills-disk"),
    "disk-error": ("troubles-disk", "breaks-disk"),
    "disk-corrupt": ("troubles-disk", "damages-data"),
    "corrupt-files": ("troubles-disk", "damages-data"),
    "truncate-files": ("troubles-disk", "damages-data"),
    "lose-unsynced": ("ends-processes", "loses-unsynced"),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. ``end_ns`` is the run's end if it was never healed; skipped faults did nothing."""

    id: int
    index: int
    kind: str
    target: str
    nodes: tuple[str, ...]
    links: tuple[tuple[str, str], ...]
    invoke_ns: int
    effective_ns: int
    end_ns: int
    proved_effective: bool
    proved_healed: bool
    skipped: str = ""
    refused: str = ""  # what the system did not do for an operator, so that it took no effect
    refused_at_end: str = ""  # what it did not do for him when the fault was healed
    effects: tuple[str, ...] = ()
    restarted: tuple[str, ...] = ()  # by its operator, beside what happened to ``nodes``

    @property
    def name(self) -> str:
        where = "+".join(self.nodes) or self.target
        return f"{self.id} {self.kind}{' ' + where if where else ''}"

    @property
    def is_partition(self) -> bool:
        return "cuts-links" in self.effects

    @property
    def takes_processes(self) -> bool:
        return "ends-processes" in self.effects

    @property
    def takes_power(self) -> bool:
        """And with it what was not flushed."""
        return "loses-unsynced" in self.effects

    @property
    def suspends(self) -> bool:
        return "suspends" in self.effects


@dataclass(frozen=True, slots=True)
class Phase:
    name: str
    index: int
    begin_ns: int
    end_ns: int | None  # None: it never ended
    settled: bool | None = None  # of the phase settle: whether it did, and else why not
    reason: str = ""
    left_down: tuple[str, ...] = ()  # nodes that no step waits for any more


@dataclass(frozen=True, slots=True)
class OperatorRestart:
    """An operator restarted these nodes one after the other, to mend a partition."""

    begin_ns: int
    end_ns: int
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Claim:
    """What a node said of its own role for a group when it was asked.

    ``by_majority``: its group acknowledges by a vote of its members, whichever node a client asks.
    """

    group: str
    role: str
    epoch: int
    synchronised: tuple[str, ...] = ()  # mirrors that have everything, as this node sees it
    end: int | None = None  # how far its log goes, where it has one
    by_majority: bool = False


@dataclass(frozen=True, slots=True)
class Observation:
    """One answer to a poll; ``ok`` is false if the node could not be asked, ``is_stalled`` if that
    was the harness's doing."""

    index: int
    node: str
    begin_ns: int
    end_ns: int
    ok: bool
    claims: tuple[Claim, ...] = ()
    is_stalled: bool = False
    running: tuple[str, ...] = ()  # nodes that it takes to run
    partitions: tuple[str, ...] = ()  # nodes that it is parted from


@dataclass(frozen=True, slots=True)
class Stall:
    """The harness, or what relays the nodes' traffic, did not run (harness/run/watchdog.py)."""

    index: int
    kind: str
    begin_ns: int
    end_ns: int  # of relays that ended: the run's
    asleep_ns: int = 0  # how long the machine slept, which no clock of the run has counted

    @property
    def of_relays(self) -> bool:
        return self.kind.startswith("relays")

    @property
    def lasted_ns(self) -> int:
        return self.asleep_ns or self.end_ns - self.begin_ns


@dataclass(frozen=True, slots=True)
class HelperEnd:
    """A process of the harness's own that serves nodes ended by itself, or was ended from outside.
    ``node``: whose; "": of all."""

    index: int
    helper: str
    node: str
    at_ns: int
    reason: str


def stalled_ns(stalls: Iterable[Stall], begin_ns: int, end_ns: int, grace_ns: int = 0) -> int:
    """How much of the time from ``begin_ns`` to ``end_ns`` is charged to none: that of the
    stalls, and ``grace_ns`` after each of them."""
    total_ns, counted_to_ns = 0, begin_ns
    for stall in sorted(stalls, key=lambda stall: stall.begin_ns):
        from_ns = max(stall.begin_ns, counted_to_ns)
        to_ns = min(stall.end_ns + grace_ns, end_ns)
        if to_ns > from_ns:
            total_ns += to_ns - from_ns
            counted_to_ns = to_ns
    return total_ns


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Everything in a history that is not a client's operation. Each tuple is in order of time.

    What nodes said across a stall of the harness is no observation: it is unknown when it was true.
    """

    faults: tuple[Fault, ...]
    phases: tuple[Phase, ...]
    observations: tuple[Observation, ...]
    end_ns: int
    operator_restarts: tuple[OperatorRestart, ...] = ()
    stalls: tuple[Stall, ...] = ()
    helper_ends: tuple[HelperEnd, ...] = ()

    def phase(self, name: str) -> Phase | None:
        return next((phase for phase in self.phases if phase.name == name), None)

    @property
    def injected(self) -> tuple[Fault, ...]:
        return tuple(fault for fault in self.faults if not fault.skipped)

    @property
    def left_out(self) -> tuple[str, ...]:
        """The nodes that had left the cluster for good when the run ended, or were left down."""
        out = {node: None for phase in self.phases for node in phase.left_down}
        for fault in self.injected:
            for node in fault.nodes if not fault.refused else ():
                if "leaves-cluster" in fault.effects:
                    out[node] = None
                elif "joins-cluster" in fault.effects:
                    out.pop(node, None)
        return tuple(out)


# Nearly every checker asks for them: they are read once a history.
_READ: WeakKeyDictionary[History, Surroundings] = WeakKeyDictionary()


def read_surroundings(history: History) -> Surroundings:
    """What the rows of process -1 say."""
    if history not in _READ:
        _READ[history] = _read_surroundings(history)
    return _READ[history]


def _read_surroundings(history: History) -> Surroundings:
    end_ns = _end_ns(history)
    rows = history.ops.filter(pc.equal(history.ops["process"], NEMESIS)).to_pylist()
    faults: list[Fault] = []
    phases: list[Phase] = []
    observations: list[Observation] = []
    restarts: list[OperatorRestart] = []
    stalls: list[Stall] = []
    helper_ends: list[HelperEnd] = []
    for row in rows:
        extra = decode_object(row["extra"])
        if row["f"] == "phase":
            name = str(extra.get("phase", ""))
            settled = extra.get("settled")
            phases.append(
                Phase(
                    name,
                    row["index"],
                    row["invoke_ns"],
                    row["complete_ns"],
                    settled if isinstance(settled, bool) else None,
                    str(extra.get("reason") or ""),
                    tuple(extra.get("left_down") or ()),
                )
            )
        elif row["f"] == "observe":
            observations.append(_observation(row, extra))
        elif row["f"] == "operator":
            done_ns = end_ns if row["complete_ns"] is None else row["complete_ns"]
            nodes = tuple(extra.get("restarted") or ())
            restarts.append(OperatorRestart(row["invoke_ns"], done_ns, nodes))
        elif row["f"] == "stall":
            stalls.append(_stall(row, extra, end_ns))
        elif row["f"] == "helper-ended":
            helper_ends.append(_helper_end(row, extra))
        elif row["f"] not in ("probe", "trigger") and "fault" in extra:
            faults.append(_fault(row, extra, end_ns))
    return Surroundings(
        faults=tuple(sorted(faults, key=lambda fault: (fault.invoke_ns, fault.id))),
        phases=tuple(sorted(phases, key=lambda phase: phase.begin_ns)),
        observations=_without_stalls(observations, stalls),
        end_ns=end_ns,
        operator_restarts=tuple(restarts),
        stalls=tuple(sorted(stalls, key=lambda stall: stall.begin_ns)),
        helper_ends=tuple(sorted(helper_ends, key=lambda ended: ended.at_ns)),
    )


def _without_stalls(
    observations: Sequence[Observation], stalls: Sequence[Stall]
) -> tuple[Observation, ...]:
    """Those that a stall touches have no answer; and of each node there is one such in each stall,
    lest it be taken to have believed throughout what it said before and after."""
    own = [stall for stall in stalls if not stall.of_relays]
    nodes = sorted({seen.node for seen in observations}) if own else []
    kept = [
        replace(seen, ok=False, claims=(), is_stalled=True)
        if any(s.begin_ns < seen.end_ns and seen.begin_ns <= s.end_ns for s in own)
        else seen
        for seen in observations
    ]
    kept += [
        Observation(stall.index, node, stall.begin_ns, stall.end_ns, ok=False, is_stalled=True)
        for stall in own
        for node in nodes
    ]
    return tuple(sorted(kept, key=lambda seen: seen.begin_ns))


def _stall(row: Decoded, extra: Decoded, run_end_ns: int) -> Stall:
    kind = str(extra.get("kind") or "")
    begin_ns = int(extra["begin_ns"] if "begin_ns" in extra else row["invoke_ns"])
    end_ns = run_end_ns if kind == "relays-ended" else int(extra.get("end_ns", begin_ns))
    return Stall(
        row["index"], kind, begin_ns, max(begin_ns, end_ns), int(extra.get("asleep_ns", 0))
    )


def _helper_end(row: Decoded, extra: Decoded) -> HelperEnd:
    helper, reason = str(extra.get("helper") or ""), str(extra.get("reason") or "")
    return HelperEnd(row["index"], helper, row["node"], row["invoke_ns"], reason)


def decode_object(text: str | None) -> Decoded:
    """The JSON object of an ``extra`` or ``detail`` cell; {} if there is none or it is damaged."""
    if not text:
        return {}
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def _end_ns(history: History) -> int:
    ops = history.ops
    if ops.num_rows == 0:
        return 0
    last_end_ns = pc.max(ops["complete_ns"]).as_py()
    return max(int(pc.max(ops["invoke_ns"]).as_py()), last_end_ns or 0)


def _fault(row: Decoded, extra: Decoded, end_ns: int) -> Fault:
    effective = extra.get("effective_ns")
    healed = extra.get("healed_ns")
    end = row["complete_ns"] if healed is None else healed
    return Fault(
        id=int(extra["fault"]),
        index=row["index"],
        kind=str(extra.get("kind") or row["f"]),
        target=str(extra.get("target") or ""),
        nodes=tuple(extra.get("nodes") or ()),
        links=tuple((source, destination) for source, destination in extra.get("links") or ()),
        invoke_ns=row["invoke_ns"],
        effective_ns=row["invoke_ns"] if effective is None else effective,
        end_ns=end_ns if end is None else end,
        proved_effective=bool(extra.get("proved_effective")),
        proved_healed=bool(extra.get("proved_healed")),
        skipped=str(extra.get("skipped") or ""),
        refused=str(extra.get("refused") or ""),
        refused_at_end=str(extra.get("refused_at_end") or ""),
        effects=_effects(extra.get("effects"), str(extra.get("kind") or row["f"])),
        restarted=tuple(extra.get("restarted") or ()),
    )


def _effects(told: object, kind: str) -> tuple[str, ...]:
    if isinstance(told, list):
        return tuple(map(str, told))
    return next((done for name, done in _OF_OLD_KINDS.items() if kind.startswith(name)), ())


def _observation(row: Decoded, extra: Decoded) -> Observation:
    claims = tuple(
        Claim(
            group=str(claim.get("group", "")),
            role=str(claim.get("role", "none")),
            epoch=int(claim.get("epoch") or 0),
            synchronised=tuple(claim.get("synchronised") or ()),
            end=claim.get("end_offset"),
            by_majority=claim.get("by_majority") is True,
        )
        for claim in extra.get("claims") or ()
    )
    end = row["invoke_ns"] if row["complete_ns"] is None else row["complete_ns"]
    ok = row["type"] == "ok"
    return Observation(
        row["index"],
        row["node"],
        row["invoke_ns"],
        end,
        ok,
        claims if ok else (),
        running=_names(extra.get("running")),
        partitions=_names(extra.get("partitions")),
    )


def _names(told: object) -> tuple[str, ...]:
    return tuple(sorted(map(str, told))) if isinstance(told, list) else ()
