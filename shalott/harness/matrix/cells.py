"""The cells of a matrix: products of its axes without what is excluded, each with its rules.

A cell is known from night to night by its key, which holds the axes and the label and no flags: a
change of flags, or of the code, is what nights are compared over.
"""

from __future__ import annotations

import fnmatch
import hashlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

from shalott.cluster.systems.record import SYSTEMS
from shalott.core.errors import Complaints, UsageError
from shalott.core.parameters import flags_of
from shalott.core.plan import Plan
from shalott.harness.matrix.definition import (
    AXES,
    Axes,
    Definition,
    FlagValue,
    Names,
    Pattern,
    Seeds,
    Verdict,
    nearest,
    seeds_of,
    several,
)
from shalott.harness.matrix.run_outcomes import RunTags, surprising
from shalott.harness.run.planning import make_plan
from shalott.harness.run.request import Request
from shalott.workloads.record import WORKLOADS

T = TypeVar("T")
TOLD_MAX = 8
OWN_FLAGS = ("seed", "given", "scenario", *AXES)


@dataclass(frozen=True, slots=True)
class Cell:
    """``nodes``: how many machines a run needs. ``expect`` and what follows: as in Rule."""

    key: str
    request: Request
    seeds: tuple[int, ...]
    nodes: int = 0
    weight: float = 1.0
    expect: tuple[str, ...] = ("valid",)
    anomalies: tuple[str, ...] = ()
    must_find: bool = False
    cores: float = 1.0

    @property
    def containers(self) -> int:
        """Nodes that are processes or containers of this machine."""
        return self.nodes if self.request.cluster in ("docker", "local") else 0

    def surprises(self, verdict: str, kinds: Sequence[str]) -> tuple[str, ...]:
        """The kinds of a run's anomalies that the cell does not expect."""
        return surprising(verdict, kinds, self.expect, self.anomalies)


def cell_as_told(key: str, tags: RunTags) -> Cell:
    """A cell of which only a run's tags tell; what they leave open must be valid."""
    expect = tuple(filter(None, tags.expect.split(","))) or ("valid",)
    anomalies = tuple(filter(None, tags.anomalies.split(",")))
    return Cell(key=key, request=Request(), seeds=(), expect=expect, anomalies=anomalies)


@dataclass(frozen=True, slots=True)
class _Draft:
    """A cell before its rules."""

    axes: dict[str, str]
    label: str
    seeds: tuple[int, ...]
    new_seeds: int
    flags: dict[str, FlagValue] = field(default_factory=dict)

    @property
    def key(self) -> str:
        parts = [self.axes[name].replace(",", "+") for name in AXES]
        return "/".join(parts) + (f"@{self.label}" if self.label else "")


@dataclass(frozen=True, slots=True)
class Cells:
    """``skipped``: sentences on products that can't be run."""

    cells: tuple[Cell, ...]
    skipped: tuple[str, ...] = ()


def expand(definition: Definition, night: str) -> Cells:
    """All cells, in the order of the file. Raises UsageError with what is wrong with them.

    ``night``: what the seeds are drawn from that are new each night.
    """
    wrong, found, skipped = Complaints(), {}, []
    count = 0
    for draft in _drafts(definition, wrong):
        if any(fits(pattern, draft) for pattern in definition.exclude if not pattern.seed):
            continue
        try:
            cell = _cell(definition, draft, night)
        except UsageError as error:
            sentence = f"cell {draft.key}: {error}"
            if definition.night.unfit == "skip":
                skipped.append(sentence)
            elif (count := count + 1) <= TOLD_MAX:
                wrong.add(sentence)
            continue
        if draft.key in found:
            wrong.add(f"cell {draft.key} is there twice: give one of them a label")
        if cell.seeds:
            found[draft.key] = cell
    if count > TOLD_MAX:
        wrong.add(f'{count - TOLD_MAX} more cells can\'t be run; unfit = "skip" leaves them out')
    wrong.tell()
    if not found:
        why = f": {skipped[0]}" if skipped else ""
        raise UsageError(f"the matrix has no cells{why}")
    return Cells(tuple(found.values()), tuple(skipped))


def _drafts(definition: Definition, wrong: Complaints) -> Iterator[_Draft]:
    for axes in definition.cells:
        seeds: tuple[int, ...] = ()
        with wrong.gathered():
            seeds = tuple(seeds_of(axes.seeds))
        names = [several(_value(axes, name)) for name in AXES]
        for values in itertools.product(*names):
            named = dict(zip(AXES, values, strict=True))
            if not named["workload"] and SYSTEMS.has(named["system"]):
                named["workload"] = SYSTEMS.find(named["system"]).workload
            yield _Draft(named, axes.label, seeds, axes.new_seeds, dict(axes.flags))


def _value(axes: Axes, name: str) -> Names:
    value: Names = getattr(axes, name)
    return value


def fits(pattern: Pattern, draft: _Draft) -> bool:
    """Whether the pattern is one of this cell."""
    for name in (*AXES, "label"):
        wanted = several(getattr(pattern, name))
        value = draft.label if name == "label" else draft.axes[name]
        values = [value, *value.split(",")] if name == "nemesis" else [value]
        if wanted and not any(fnmatch.fnmatchcase(v, w) for v in values for w in wanted):
            return False
    return True


def _cell(definition: Definition, draft: _Draft, night: str) -> Cell:
    """Raises UsageError if it can't be a plan."""
    rules = [rule for rule in definition.rule if fits(rule.of, draft)]
    flags = dict(draft.flags)
    for rule in rules:
        flags |= rule.flags
    request = request_of(draft.axes, flags)
    told: list[Seeds] = [draft.seeds, *(rule.seeds for rule in rules if rule.seeds is not None)]
    seeds = seeds_of(told[-1])
    drawn = _last([rule.new_seeds for rule in rules], draft.new_seeds)
    seeds += [_drawn(night, draft.key, number) for number in range(drawn)]
    gone = {
        seed
        for pattern in definition.exclude
        if pattern.seed and fits(pattern, draft)
        for seed in pattern.seed
    }
    plan = _checked(request)
    expect: Verdict | tuple[Verdict, ...] = _last([rule.expect for rule in rules], "valid")
    return Cell(
        key=draft.key,
        request=request,
        seeds=tuple(seed for seed in dict.fromkeys(seeds) if seed not in gone),
        nodes=len(plan.cluster.nodes),
        weight=_last([rule.weight for rule in rules], 1.0),
        expect=tuple(several(expect)),
        anomalies=_last([rule.anomalies for rule in rules], ()),
        must_find=_last([rule.must_find for rule in rules], False),
        cores=_last([rule.cores for rule in rules], 1.0),
    )


def _last(values: Sequence[T | None], default: T) -> T:
    """What the last rule says that says anything."""
    said = [value for value in values if value is not None]
    return said[-1] if said else default


def _checked(request: Request) -> Plan:
    if request.cluster == "auto":
        raise UsageError("cluster auto: say which, as cells of nights are compared")
    return make_plan(request, backend=request.cluster, seed=1)


def _drawn(night: str, key: str, number: int) -> int:
    """The same for every shard of a night."""
    data = f"{night}|{key}|{number}".encode()
    return int.from_bytes(hashlib.blake2b(data, digest_size=4).digest())


def request_of(axes: dict[str, str], flags: dict[str, FlagValue]) -> Request:
    """``shalott test``'s words. Raises UsageError for a flag that there is not."""
    own = {each.name: each for each in fields(Request)}
    given: dict[str, str | bool] = {}
    typed: dict[str, Any] = {}
    parameters = _parameter_flags()
    for name, value in flags.items():
        attribute = name.replace("-", "_")
        if attribute in OWN_FLAGS:
            raise UsageError(f"flag {name}: it is an axis, or not of a matrix")
        if attribute in own:
            typed[attribute] = _as_typed(name, value, own[attribute].default)
        elif name in parameters:
            given[name] = value if isinstance(value, bool) else _text(value)
        else:
            known = [each.replace("_", "-") for each in own if each not in OWN_FLAGS]
            raise UsageError(f"flag {name} is not known: {nearest(name, [*known, *parameters])}")
    typed |= axes
    return replace(Request(), **typed, given=given)


def _parameter_flags() -> list[str]:
    structs = [record.parameters for record in WORKLOADS.records()]
    structs += [record.parameters for record in SYSTEMS.records()]
    return list(dict.fromkeys(flag.name for each in structs for flag in flags_of(each)))


def _as_typed(name: str, value: FlagValue, default: object) -> object:
    """The value in the type of the request's field. Raises UsageError."""
    if isinstance(default, tuple):
        return tuple(several(value) if isinstance(value, str | tuple) else [_text(value)])
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise UsageError(f"flag {name} = {value!r}: give true or false")
        return value
    if isinstance(default, str):
        return _text(value)
    try:
        return (
            float(_text(value))
            if isinstance(default, float) or default is None
            else int(_text(value))
        )
    except ValueError as error:
        raise UsageError(f"flag {name} = {value!r}: give a number") from error


def _text(value: FlagValue) -> str:
    if isinstance(value, tuple):
        return ",".join(value)
    return f"{value:g}" if isinstance(value, float) else str(value)
