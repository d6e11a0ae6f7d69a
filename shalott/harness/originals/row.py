"""A row of the ladder: a known bug of RocketMQ, and how to decide it on RocketMQ itself.

Which releases have the bug was read in their sources (``read_in``: a file and what stands there, or
the commit that mended it and the first release that has the commit). A row has one plan, which is
run on a release that has the bug and, as the control, on one that has not; where every release has
it, the control is the same release under settings that close it. A row without a plan says why it
can't be decided in containers, and what it waits for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import get_args

from shalott.cluster.systems.rocketmq_original.parameters import Release, numbers
from shalott.core.json_value import Json
from shalott.core.plan import FaultAction

RELEASES: tuple[str, ...] = tuple(sorted(get_args(Release), key=numbers))


def releases(first: str = "", last: str = "") -> tuple[str, ...]:
    """Those that can be had, from the first to the last named one, both included.

    Names need not be among them: ``releases(last="5.2.0")``.
    """
    low, high = numbers(first or RELEASES[0]), numbers(last or RELEASES[-1])
    return tuple(each for each in RELEASES if low <= numbers(each) <= high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """Evidence in the brokers' own logs: lines that match ``pattern`` (a regular expression, over a
    line without its time), at least so many on one node, while the load lasts."""

    pattern: str
    least: int = 1
    service: str = "broker"  # whose log: broker, nameserver, controller


@dataclass(frozen=True, slots=True, kw_only=True)
class Shows:
    """What a run must show for the bug to count as found: any class of anomaly of these because of
    which the run is invalid, or the lines, or a name server that takes one master for the other at
    least so often (``route_changes``; 0: that does not count). ``fresh_reads``: polls are judged
    for being stale, though nothing promises that they are not. ``with_line``: what must stand in a
    log besides, or an anomaly has another reason."""

    anomalies: tuple[str, ...] = ()
    lines: Lines | None = None
    route_changes: int = 0
    fresh_reads: bool = False
    with_line: Lines | None = None

    @property
    def words(self) -> str:
        found = [*self.anomalies]
        if self.with_line is not None:
            found.append(f"and in a log: `{self.with_line.pattern}`")
        if self.lines is not None:
            found.append(f"log: `{self.lines.pattern.replace('|', chr(92) + '|')}`")
        if self.route_changes:
            found.append(f"{self.route_changes} changes of a name server's mind")
        return ", ".join(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What is booted and loaded. ``policy``: RocketMQ's own names. ``services``: what each node
    hosts, by node; empty if each hosts all. ``workload``: parameters of the workload."""

    replication: str
    profile: str = "upstream"
    nodes: tuple[str, ...] = ("n1", "n2", "n3")
    services: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    policy: Mapping[str, Json] = field(default_factory=dict)
    topic_made_at: str = "all"
    workload: str = "log"
    told: Mapping[str, str] = field(default_factory=dict)
    clients_a_node: int = 2
    rate_hz: float = 50.0
    op_timeout_ms: int = 5000
    time_limit_ms: int = 30_000
    quiet_ms: int = 2000
    settle_timeout_ms: int = 25_000
    observe_interval_ms: int = 500
    max_rto_ms: int | None = None
    must_settle: bool = False
    must_converge: bool = False
    power_loss: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ours:
    """The same plan on our broker, in simulation: by which system, with which known bug on, and
    what of the settings must differ there (None leaves one out)."""

    system: str
    bug: str = ""  # "": it is no bug but settings, and ``closed`` closes them
    policy: Mapping[str, Json] = field(default_factory=dict)
    closed: Mapping[str, Json] = field(default_factory=dict)
    anomalies: tuple[str, ...] = ()  # if ours calls it otherwise


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """``id``: the catalogue's, or W-, M- for what was measured on the original.

    ``has``, ``free``: releases that can be had, with the bug and without it. ``run_on``: the
    release on which the plan is run. ``control_on``: the one without it; "": all have it, and
    ``control_policy`` closes it on the same release, if anything does, or ``control_told``, what
    the system is told besides (its parameters).
    ``waits_for``: why there is no plan.
    """

    id: str
    title: str = ""  # "": the catalogue's
    links: tuple[str, ...] = ()
    has: tuple[str, ...] = ()
    free: tuple[str, ...] = ()
    read_in: str = ""
    setup: Setup | None = None
    faults: tuple[FaultAction, ...] = ()
    shows: Shows = Shows()
    run_on: str = ""
    control_on: str = ""
    control_policy: Mapping[str, Json] = field(default_factory=dict)
    control_told: Mapping[str, str] = field(default_factory=dict)
    why: str = ""  # what the plan does, and why that shows it
    ours: Ours | None = None
    same_as: str = ""  # another row, whose plan and mend are this one's too
    waits_for: str = ""

    @property
    def control_words(self) -> str:
        """What the control is: "" if there is none."""
        if self.control_on:
            return self.control_on
        settings = {**self.control_policy, **self.control_told}
        closed = ", ".join(f"{name}={text_of(value)}" for name, value in settings.items())
        return f"{self.run_on} with {closed}" if closed else ""


def text_of(value: Json) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def fault(
    number: int,
    kind: str,
    target: str,
    at_ms: int,
    duration_ms: int,
    *,
    nodes: tuple[str, ...] | None = None,
    links: tuple[tuple[str, str], ...] | None = None,
    amount: float = 0,
) -> FaultAction:
    """A fault of a row's plan. A target of node names, joined by +, needs no ``nodes``; those of a
    role are known when it fires."""
    if nodes is None and target.startswith("n"):
        nodes = tuple(target.split("+"))
    return FaultAction(
        id=number, at_ms=at_ms, duration_ms=duration_ms, kind=kind, target=target, seed=number,
        nodes=nodes, links=links, amount=amount,
    )  # fmt: skip


def between(one: str, other: str) -> tuple[tuple[str, str], ...]:
    """Both directions of every link between the nodes of ``one`` and those of ``other``, which are
    joined by +."""
    pairs = [(a, b) for a in one.split("+") for b in other.split("+")]
    return (*pairs, *((b, a) for a, b in pairs))
