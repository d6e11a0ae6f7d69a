"""A sequence: faults that begin and end one at another's beginning or end, in words. Pure.

    --sequence 'pause n1+n2; kill n3; end pause; wait 2s; pause one; end kill'

Steps are apart by semicolons, and each is taken when the one before is done: a fault that began has
been looked at, one that ended is healed.

- ``KIND [TARGET] [WORD=VALUE ...]`` begins a fault; words as ``--fault`` has them
- ``end KIND`` ends the fault of that kind that began last; ``end`` ends all
- ``wait TIME``
- ``3x`` before the first step: all of it so often, and at the end of each round all ends

What is not ended lasts to the end of the load. Each step is a fault of the plan, with a trigger
(``Trigger`` in core/plan.py) for its beginning and one for its end, so plans that are shrunk or
repeated keep the order. ``relinked`` mends the order where a fault is taken out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from shalott.core.errors import UsageError
from shalott.core.parameters import parse_duration_ms, to_plan
from shalott.core.plan import FaultAction, Trigger
from shalott.core.rng import Stream, stream_key
from shalott.nemesis.aiming import aim, draw_atlas
from shalott.nemesis.fault_words import parse_words
from shalott.nemesis.record import FAULTS
from shalott.nemesis.schedule import TAIL_MS, Allowed
from shalott.nemesis.targets import check_target

EXAMPLE = "give steps such as 'pause n1+n2; kill n3; end pause; wait 2s; end kill'"
MOST_ROUNDS = 100

replace = msgspec.structs.replace


@dataclass(slots=True, kw_only=True)
class _Making:
    """A sequence that is being made into faults. ``after``: the step that was taken last."""

    text: str
    number: int  # among a plan's sequences
    seed: int
    nodes: Sequence[str]
    allowed: Allowed | None
    begin_ms: int
    end_ms: int
    next_id: int
    made: dict[int, FaultAction] = field(default_factory=dict)
    in_force: list[int] = field(default_factory=list)
    after: Trigger | None = None
    wait_ms: int = 0

    def take(self, step: str) -> None:
        word, *rest = step.split()
        if word == "wait" and len(rest) == 1:
            self.wait_ms += parse_duration_ms(f"--sequence: {step}", rest[0])
        elif word == "end" and len(rest) <= 1:
            self._end(rest[0] if rest else "")
        elif FAULTS.has(word):
            self._begin(word, rest)
        else:
            raise UsageError(f"--sequence: {step!r} is no step; {EXAMPLE}")

    def _begin(self, kind: str, words: Sequence[str]) -> None:
        record = FAULTS.find(kind)
        target = "one"
        if words and "=" not in words[0]:
            target, words = words[0], words[1:]
        told = parse_words(record, words, f"--sequence: {kind}")
        target = told.target or target
        check_target(target, self.nodes)
        key = (self.seed, "sequence", self.number, len(self.made))
        late_ms = self.wait_ms if self.after is None else 0
        draft = FaultAction(
            id=self.next_id,
            at_ms=self.begin_ms + late_ms,
            duration_ms=self.end_ms - self.begin_ms - late_ms,
            kind=kind,
            target=target,
            amount=told.amount or Stream(*key, "amount").choice(record.amounts or (0,)),
            parameters={**to_plan(record.parameters()), **told.parameters},
            seed=stream_key(*key, "firing") >> 1,
            when=msgspec.UNSET if self.after is None else self._trigger(self.after),
        )
        hittable = self.nodes if self.allowed is None else self.allowed(record.name)
        if not hittable:
            raise UsageError(f"--sequence: no node may meet {record.name} by the inventory")
        atlas = draw_atlas(self.seed, hittable)
        self.made[draft.id] = aim(
            draft, record, self.nodes, Stream(*key), atlas=atlas, hittable=hittable
        )
        self.in_force.append(draft.id)
        self.next_id += 1
        self._taken("begun", draft.id)

    def _end(self, kind: str) -> None:
        own = [id for id in self.in_force if kind in ("", self.made[id].kind)]
        if not own and not kind:
            return  # all has ended
        if not own or self.after is None:
            raise UsageError(f"--sequence: no fault {kind} is in force that could end; {EXAMPLE}")
        ending = own[-1:] if kind else own
        until = self._trigger(self.after)
        for id in ending:
            self.made[id] = replace(self.made[id], until=until)
            self.in_force.remove(id)
        self._taken("ended", ending[-1])

    def _trigger(self, after: Trigger) -> Trigger:
        return replace(after, delay_ms=self.wait_ms)

    def _taken(self, what: str, fault: int) -> None:
        within_ms = max(1, self.end_ms - self.begin_ms)
        self.after = Trigger(kind="fault", what=what, fault=fault, within_ms=within_ms)
        self.wait_ms = 0


def make_sequences(
    texts: Sequence[str],
    *,
    nodes: Sequence[str],
    begin_ms: int,
    time_limit_ms: int,
    seed: int,
    first_id: int = 1,
    allowed: Allowed | None = None,
) -> tuple[FaultAction, ...]:
    """The faults of all sequences, each of which begins at ``begin_ms``. Raises UsageError."""
    made: list[FaultAction] = []
    for number, text in enumerate(texts):
        making = _Making(
            text=text,
            number=number,
            allowed=allowed,
            seed=seed,
            nodes=nodes,
            begin_ms=begin_ms,
            end_ms=time_limit_ms - TAIL_MS,
            next_id=first_id + len(made),
        )
        if making.end_ms <= begin_ms:
            raise UsageError(f"a time limit of {time_limit_ms} ms leaves no room for --sequence")
        for step in _steps(text):
            making.take(step)
        made += making.made.values()
    return tuple(made)


def _steps(text: str) -> Iterator[str]:
    found = re.fullmatch(r"\s*(?:(\d+)x\s)?(.*)", text, re.S)
    assert found is not None
    steps = [step.strip() for step in found[2].split(";") if step.strip()]
    rounds = int(found[1] or 1)
    if not steps or not 1 <= rounds <= MOST_ROUNDS:
        raise UsageError(f"--sequence {text!r}: {EXAMPLE}")
    for _ in range(rounds):
        yield from steps
        if rounds > 1 and steps[-1] != "end":
            yield "end"


def check_sequence(text: str) -> None:
    """What can be seen of its words alone. Raises UsageError."""
    for step in _steps(text):
        word = step.split()[0]
        if word not in ("wait", "end"):
            FAULTS.find(word)


# -- Taking faults out -----------------------------------------------------------------------------


def relinked(before: Sequence[FaultAction], kept: Sequence[FaultAction]) -> tuple[FaultAction, ...]:
    """Those that are kept, where some wait for faults that are not: they wait for what those waited
    for, or come when those were to come. What counted since then counts at any time."""
    gone = {action.id: action for action in before}
    for action in kept:
        gone.pop(action.id, None)
    return tuple(_relinked(_at_any_time(action, gone), gone) for action in kept)


def _at_any_time(action: FaultAction, gone: Mapping[int, FaultAction]) -> FaultAction:
    when = action.when
    if when is msgspec.UNSET or when.kind == "fault" or when.fault not in gone:
        return action
    return replace(action, when=replace(when, fault=0))


def _relinked(action: FaultAction, gone: Mapping[int, FaultAction]) -> FaultAction:
    while (when := _of_gone(action.when, gone)) is not None:
        other = gone[when.fault]
        if other.when is msgspec.UNSET:
            action = replace(action, at_ms=other.at_ms + when.delay_ms, when=msgspec.UNSET)
        else:
            delay_ms = other.when.delay_ms + when.delay_ms
            action = replace(action, when=replace(other.when, delay_ms=delay_ms))
    while (until := _of_gone(action.until, gone)) is not None:
        following = gone[until.fault].when
        if following is msgspec.UNSET or following.fault == action.id:
            return replace(action, until=msgspec.UNSET)
        action = replace(action, until=following)
    return action


def _of_gone(
    trigger: Trigger | msgspec.UnsetType, gone: Mapping[int, FaultAction]
) -> Trigger | None:
    if trigger is msgspec.UNSET or trigger.kind != "fault" or trigger.fault not in gone:
        return None
    return trigger
