"""Drawing what faults wait for: in a share of a search's plans some faults come in a moment of a
node, a disk or a message, not at a time. Pure.

A time is drawn from seconds, and what a broker does between an append and its sync takes less than
a millisecond; the n-th of such moments is hit by counting. Every draw is keyed by the seed and the
fault's number, and replaces only what an action waits for: the schedule stays what it was.

Under a promise that takes one node at a time, a fault waits for the cluster to have synchronised
first, as ever. There no node changes a role or a set, so only what is always going on is waited
for; what brings a fault to its end may be anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from shalott.core.plan import FaultAction, Trigger
from shalott.core.rng import Stream, stream_key
from shalott.nemesis.record import FAULTS, members
from shalott.nemesis.targets import THERE, is_single
from shalott.nemesis.trigger_words import CALLS, MOMENTS
from shalott.nemesis.triggers import CHANGES

SHARE = 0.7  # of the faults of such a plan
END_SHARE = 0.25  # of them: something brings them to their end
COUNTS = (1, 1, 1, 1, 2, 2, 3, 5, 8, 13, 30)
WITHIN_MS = 5000
# Of the nodes that are killed: a second time, at a call of its disk while it comes up again. What
# a start finds and builds on is tried by nothing else.
AGAIN_SHARE = 0.4
AGAIN = ("kill", "power")
ALL_AGAIN = ("kill-all", "power-all")  # the same of all nodes at once, also after a restart
# Of these: another node is, which may be the master that it gets its data from.
ELSEWHERE_SHARE = 0.6
# Of these: it is who sent the message, as a master to a mirror that it synchronises.
SENDER_SHARE = 0.5
# Of the same: it comes when roles, epochs or sets change next, and hits who tells of that, such as
# the successor, whose set has no other member yet.
NEXT_SHARE = 0.3
NEXT_COUNTS = (1, 1, 2, 3)
# Of the nodes that are taken: another one's disk is slow meanwhile, so that what it was told last
# is not safe there when it takes over.
BESIDE_SHARE = 0.4
BESIDE, SLOW = ("kill", "power", "stop", "suspend", "pause"), "disk-slow"
BESIDE_MS = (100, 300)  # each call of it
BESIDE_BEFORE_MS, BESIDE_AFTER_MS = 500, 2000
# They take hold of a node, or of its links, at once, so that it can be held until they have; or ask
# it to end.
_AT_ONCE = ("kill", "power", "pause", "suspend", "hold-back", "stop")
_DISKS = ("disk-full", "disk-error")  # the next call fails
_PARTITIONS = tuple(record.name for record in members("partition"))
# What only the simulation can do, in place of what takes as much away.
_INSTEAD = {
    "pause": "suspend",
    "partition-one": "hold-back",
    "partition-one-way": "hold-back",
}
INSTEAD_SHARE = 0.5


def draw_triggers(
    seed: int,
    actions: Sequence[FaultAction],
    *,
    messages: Sequence[str],
    files: Sequence[str],
    changes: bool,
) -> tuple[FaultAction, ...]:
    """``messages`` and ``files``: what the system names (NamesMessages). ``changes``: whether
    faults may come when roles, epochs and sets change."""
    return tuple(
        _drawn(seed, action, messages=messages, files=files, changes=changes) for action in actions
    )


def draw_again(
    seed: int,
    actions: Sequence[FaultAction],
    nodes: Sequence[str] = (),
    messages: Sequence[str] = (),
) -> tuple[FaultAction, ...]:
    """The actions, and kills of nodes that were killed, or of another one of ``nodes``, of the
    kinds that are there, while they come up again. Who hits one node at a time keeps to that."""
    present = dict.fromkeys(action.kind for action in actions)
    kinds, of_all = _there(AGAIN, present), _there(ALL_AGAIN, present)
    more = []
    for action in actions:
        rng = Stream(seed, "again", action.id)
        is_one = action.kind in AGAIN and (is_single(action.target) or action.target == THERE)
        if action.kind in (*ALL_AGAIN, "restart-all") and of_all and rng.random() < AGAIN_SHARE:
            again = _again(seed, action, rng.choice(of_all), rng)
            more.append((_all_again(seed, action, again, messages), action.id))
        elif is_one and rng.random() < AGAIN_SHARE:
            again = _again(seed, action, rng.choice(kinds), rng)
            if nodes:
                again = _elsewhere(seed, action.id, again, nodes, messages)
                if not any(each.settle for each in actions):
                    again = _at_change(seed, action.id, again, present)
            more.append((again, action.id))
    return together(actions, more)


def _there(kinds: Sequence[str], present: Mapping[str, None]) -> list[str]:
    return sorted(kind for kind in kinds if kind in present)


def together(
    actions: Sequence[FaultAction], more: Sequence[tuple[FaultAction, int]]
) -> tuple[FaultAction, ...]:
    """In order of time. ``more``: those that count since another, with its id."""
    both = [*((action, 0) for action in actions), *more]
    both.sort(key=lambda pair: (pair[0].at_ms, pair[0].kind))
    number = {action.id: n for n, (action, first) in enumerate(both, start=1) if not first}
    return tuple(
        msgspec.structs.replace(_since(action, number.get(first, 0)), id=n)
        for n, (action, first) in enumerate(both, start=1)
    )


def apart(
    actions: Sequence[FaultAction],
) -> tuple[tuple[FaultAction, ...], list[tuple[FaultAction, int]]]:
    """Those that come by themselves, and those that count since another, with its id."""
    alone, more = [], []
    for action in actions:
        when = action.when
        if when is not msgspec.UNSET and when.kind != "fault" and when.fault:
            more.append((action, when.fault))
        else:
            alone.append(action)
    return tuple(alone), more


def _since(action: FaultAction, fault: int) -> FaultAction:
    if not fault or action.when is msgspec.UNSET:
        return action
    return msgspec.structs.replace(action, when=msgspec.structs.replace(action.when, fault=fault))


def _again(seed: int, action: FaultAction, kind: str, rng: Stream) -> FaultAction:
    when = Trigger(
        kind="disk", what=rng.choice(CALLS), count=rng.choice(COUNTS),
        moment=rng.choice(("before", "after")), within_ms=action.duration_ms + WITHIN_MS,
    )  # fmt: skip
    return msgspec.structs.replace(
        action, kind=kind, at_ms=action.at_ms + 1, duration_ms=500 + rng.below(1500), when=when,
        target=THERE, nodes=None, settle=False, until=msgspec.UNSET,
        seed=stream_key(seed, "again", action.id, "firing") >> 1,
    )  # fmt: skip


def _all_again(
    seed: int, action: FaultAction, again: FaultAction, messages: Sequence[str]
) -> FaultAction:
    """All nodes once more, at such a call of one's disk or message of a kind."""
    rng, when = Stream(seed, "all again", action.id), again.when
    assert when is not msgspec.UNSET
    if messages and rng.random() < SHARE:
        when = Trigger(
            kind="message", what=rng.choice(messages), count=rng.choice(COUNTS),
            moment=rng.choice(("before", "after")), within_ms=when.within_ms,
        )  # fmt: skip
    return msgspec.structs.replace(again, target=action.target, nodes=action.nodes, when=when)


def _elsewhere(
    seed: int,
    first: int,
    again: FaultAction,
    nodes: Sequence[str],
    messages: Sequence[str],
) -> FaultAction:
    """In a share: any node, which may be the master, when the one that comes up has got so many
    messages of a kind, or at such a call of its disk."""
    rng, when = Stream(seed, "elsewhere", first), again.when
    if rng.random() >= ELSEWHERE_SHARE or when is msgspec.UNSET:
        return again
    if messages and rng.random() < SHARE:
        when = Trigger(
            kind="message", what=_late(messages, rng), count=rng.choice(COUNTS),
            moment=rng.choice(("before", "after")), within_ms=when.within_ms,
        )  # fmt: skip
    node = rng.choice(nodes)
    if when.kind == "message" and Stream(seed, "sender", first).random() < SENDER_SHARE:
        return msgspec.structs.replace(again, when=msgspec.structs.replace(when, moment="sent"))
    return msgspec.structs.replace(again, target=node, nodes=(node,), when=when)


def _at_change(
    seed: int, first: int, again: FaultAction, present: Mapping[str, None]
) -> FaultAction:
    """In a share: who is next told to have changed, or one that a pause takes for dead."""
    rng, when = Stream(seed, "change", first), again.when
    if rng.random() >= NEXT_SHARE or when is msgspec.UNSET:
        return again
    kind = rng.choice((again.kind, *_there(("pause",), present)))
    when = Trigger(
        kind="observed", what=rng.choice(CHANGES), count=rng.choice(NEXT_COUNTS), moment="after",
        within_ms=when.within_ms,
    )  # fmt: skip
    return msgspec.structs.replace(again, kind=kind, target=THERE, nodes=None, when=when)


def draw_beside(
    seed: int, actions: Sequence[FaultAction], nodes: Sequence[str]
) -> tuple[FaultAction, ...]:
    """The actions, and a slow disk beside some of those that take one node, if the plan has slow
    disks. That takes nothing, so a promise holds as before."""
    alone, more = apart(actions)
    if all(action.kind != SLOW for action in alone):
        return tuple(actions)
    beside = []
    for action in alone:
        rng = Stream(seed, "beside", action.id)
        is_one = action.kind in BESIDE and is_single(action.target)
        if is_one and rng.random() < BESIDE_SHARE:
            node = rng.choice(nodes)
            slow = FaultAction(
                id=0, at_ms=max(0, action.at_ms - BESIDE_BEFORE_MS), kind=SLOW, target=node,
                duration_ms=action.duration_ms + BESIDE_BEFORE_MS + BESIDE_AFTER_MS, nodes=(node,),
                amount=rng.choice(BESIDE_MS), seed=rng.next_u64() >> 1,
            )  # fmt: skip
            beside.append(slow)
    return together([*alone, *beside], more)


def _drawn(
    seed: int,
    action: FaultAction,
    *,
    messages: Sequence[str],
    files: Sequence[str],
    changes: bool,
) -> FaultAction:
    rng = Stream(seed, "triggers", action.id)
    other = _INSTEAD.get(action.kind)
    if other is not None and rng.random() < INSTEAD_SHARE:
        action = msgspec.structs.replace(action, kind=other, amount=0, parameters={})
    if not action.triggers and FAULTS.find(action.kind).takes != "nothing":
        if rng.random() < END_SHARE:
            until = Trigger(kind="observed", what=rng.choice(CHANGES), within_ms=WITHIN_MS)
            action = msgspec.structs.replace(action, until=until)
        if action.kind in (*_AT_ONCE, *_DISKS, *_PARTITIONS) and rng.random() < SHARE:
            kinds = ["disk", *(["message"] if messages else []), *(["change"] if changes else [])]
            return _when(action, rng.choice(kinds), messages, files, rng)
    return action


def _when(
    action: FaultAction,
    kind: str,
    messages: Sequence[str],
    files: Sequence[str],
    rng: Stream,
) -> FaultAction:
    """Who is hit is who the moment is of, unless the plan names a node."""
    hit = action.nodes or ()
    own = hit[0] if len(hit) == 1 else ""
    count, moment = rng.choice(COUNTS), rng.choice(MOMENTS.get(kind, ("after",)))
    if kind == "disk":
        what = rng.choice(CALLS)
        of_files = _early(("", *files), rng) if what != "rename" else ""
        when = Trigger(kind="disk", what=what, node=own, files=of_files)
    elif kind == "message":
        when = Trigger(kind="message", what=_early(messages, rng))
        at_sender = moment == "sent" or rng.random() < 0.25
        ends = {"sender": own} if at_sender else {"node": own}
        when = msgspec.structs.replace(when, **ends)
    else:
        when = Trigger(kind="observed", what=rng.choice(CHANGES), node=own)
        count = min(count, 3)
    when = msgspec.structs.replace(when, count=count, moment=moment, within_ms=WITHIN_MS)
    if len(hit) > 1 or own or action.links:
        return msgspec.structs.replace(action, when=when)
    return msgspec.structs.replace(action, when=when, target=THERE, nodes=None)


def _early(names: Sequence[str], rng: Stream) -> str:
    """Rather one of the first, which come all the time."""
    return names[min(rng.below(len(names)), rng.below(len(names)))]


def _late(names: Sequence[str], rng: Stream) -> str:
    """Rather one of the last, which come when nodes join, synchronise or elect."""
    return names[max(rng.below(len(names)), rng.below(len(names)))]
