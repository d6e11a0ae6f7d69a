"""Weaker faults: what a shrinker may try in place of one action, and the order of strength.

What only one kind knows is in its record (``weaker``); the rest is the same for all: smaller
amounts and parameters, fewer nodes, fewer links. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from shalott.core.parameters import make_parameters, to_plan
from shalott.core.plan import FaultAction
from shalott.nemesis.record import FAULTS, FaultRecord

replace = msgspec.structs.replace

UNKNOWN_STRENGTH = 50


def weaker_actions(action: FaultAction) -> Iterator[FaultAction]:
    """What to try in place of an action, each of them a step that makes it weaker."""
    if FAULTS.has(action.kind):
        record = FAULTS.find(action.kind)
        yield from record.weaker(action)
        yield from _smaller_amounts(action, record)
        yield from _smaller_parameters(action, record)
    yield from _fewer_links_or_nodes(action)
    yield from _sooner(action)
    yield from without_trigger(action)


def strength(action: FaultAction) -> float:
    """By kind; within a kind, by the place of the amount and the parameters among their choices.

    Less is weaker. A kind that is not known here is as strong as a kill.
    """
    if not FAULTS.has(action.kind):
        return UNKNOWN_STRENGTH
    record = FAULTS.find(action.kind)
    found = [_place(value, choices) for value, choices in _drawn(action, record)]
    last = sum(len(choices) for _, choices in _drawn(action, record))
    return record.strength + sum(found) / (last + 1)


def as_kind(action: FaultAction, other: FaultRecord) -> Iterator[FaultAction]:
    """As another kind: with its weakest amount, then with stronger ones."""
    for amount in other.amounts or (0,):
        yield replace(action, kind=other.name, amount=amount, parameters={})


def on_one_node(action: FaultAction, other: FaultRecord) -> Iterator[FaultAction]:
    """A fault of all nodes as one of a single node, each in turn."""
    for node in action.nodes or ():
        yield replace(action, kind=other.name, target=node, nodes=(node,), jitter_ms=0)


def without_jitter(action: FaultAction) -> Iterator[FaultAction]:
    if action.jitter_ms:
        yield replace(action, jitter_ms=0)


def _smaller_amounts(action: FaultAction, record: FaultRecord) -> Iterator[FaultAction]:
    amounts = record.amounts
    for amount in amounts[: _place(action.amount, amounts)]:
        yield replace(action, amount=amount)


def _smaller_parameters(action: FaultAction, record: FaultRecord) -> Iterator[FaultAction]:
    parameters = make_parameters(record.parameters, action.parameters)
    for name, choices in record.choices.items():
        for value in choices[: _place(getattr(parameters, name), choices)]:
            yield replace(action, parameters={**to_plan(parameters), name: value})


def _drawn(action: FaultAction, record: FaultRecord) -> list[tuple[object, tuple[object, ...]]]:
    """Each value that a schedule draws for such an action, with the choices there are."""
    parameters = make_parameters(record.parameters, action.parameters)
    told = [(getattr(parameters, name), choices) for name, choices in record.choices.items()]
    return [(action.amount, record.amounts), *told] if record.amounts else told


def _place(value: object, choices: tuple[object, ...]) -> int:
    """Behind the last one for what is none of the choices."""
    return choices.index(value) if value in choices else len(choices)


def without_trigger(action: FaultAction) -> Iterator[FaultAction]:
    """At the time when its trigger fired, where that is known, else at its own time; and as long as
    it was in force till that of its end fired."""
    when, until = action.when, action.until
    if until is not msgspec.UNSET:
        begin_ms = _begin_ms(action)
        if until.fired_ms is not msgspec.UNSET and begin_ms is not None:
            lasted_ms = until.fired_ms + until.delay_ms - begin_ms
            yield replace(action, duration_ms=max(1, lasted_ms), until=msgspec.UNSET)
        yield replace(action, until=msgspec.UNSET)
    if when is msgspec.UNSET:
        return
    if when.fired_ms is not msgspec.UNSET:
        yield replace(action, at_ms=when.fired_ms + when.delay_ms, when=msgspec.UNSET)
    yield replace(action, at_ms=action.at_ms + when.delay_ms, when=msgspec.UNSET)


def _sooner(action: FaultAction) -> Iterator[FaultAction]:
    """What it waits for counts less often, or is of any file."""
    for name in ("when", "until"):
        trigger = getattr(action, name)
        if trigger is msgspec.UNSET:
            continue
        for count in dict.fromkeys((1, trigger.count // 2, trigger.count - 1)):
            if 0 < count < trigger.count:
                yield replace(action, **{name: replace(trigger, count=count)})
        if trigger.files:
            yield replace(action, **{name: replace(trigger, files="")})


def _begin_ms(action: FaultAction) -> int | None:
    when = action.when
    if when is msgspec.UNSET:
        return action.at_ms
    return None if when.fired_ms is msgspec.UNSET else when.fired_ms + when.delay_ms


def _fewer_links_or_nodes(action: FaultAction) -> Iterator[FaultAction]:
    """Without one pair of linked nodes; in faults that hit no links, without one node."""
    nodes, links = action.nodes, action.links
    hits_all = FAULTS.has(action.kind) and FAULTS.find(action.kind).hits_all
    if links is not None and len(links) > 1:
        pairs = dict.fromkeys(tuple(sorted(link)) for link in links)
        for pair in pairs if len(pairs) > 1 else ():
            yield replace(action, links=tuple(x for x in links if tuple(sorted(x)) != pair))
    if links is None and nodes is not None and len(nodes) > 1 and not hits_all:
        for gone in reversed(nodes):
            kept = tuple(node for node in nodes if node != gone)
            yield replace(action, target="+".join(kept), nodes=kept)
