"""Triggers in words: what ``--trigger`` takes, and what the history says of one. Pure.

    [NEMESIS:]CONDITION[,node=n1][,group=q][,role=master][,count=2][,within=20s][,delay=50ms]

CONDITION is ``master=n2`` or ``master``, ``synchronising``, ``shrinks``, ``role``, ``epoch``,
``set``, ``syncs=3``, ``event=promoted``, ``disk=write``, ``message=Activity``, or ``begun=1`` and
``ended=1`` of another fault. With a nemesis it is for the faults of that one, else for all of the
schedule. A disk takes ``files=PATTERN`` as well, a message ``from=n2``, and all that nodes do or
tell ``moment=before`` or ``after``. With ``since=1`` it counts from when fault 1 has begun.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from shalott.cluster.capabilities import Capability
from shalott.cluster.system import NamesMessages, System, TellsSynchronisations, WritesEvents
from shalott.core.errors import UsageError
from shalott.core.parameters import parse_duration_ms
from shalott.core.plan import FaultAction, Trigger
from shalott.nemesis.record import FAULTS, check_nemesis
from shalott.nemesis.targets import THERE

OBSERVED = ("master", "synchronising", "shrinks", "role", "epoch", "set")
CALLS = ("write", "sync", "rename")  # of disks
MOMENTS: Mapping[str, tuple[str, ...]] = {
    "disk": ("before", "after"),
    "message": ("sent", "before", "after"),
    "event": ("", "after"),
    "observed": ("", "after"),
}
ANY = "any"  # message, in words
OF_FAULTS = ("begun", "ended")
_EXAMPLE = "give [NEMESIS:]CONDITION[,node=n1], such as master=n2, kill:synchronising or syncs=3"
_NEEDS: Mapping[str, tuple[Capability, ...]] = {
    "event": ("trigger-event",),
    "syncs": ("trigger-sync",),
    "disk": ("trigger-disk",),
    "message": ("trigger-message",),
}
_FIELDS = {
    **{name: name for name in ("node", "group", "role", "files")},
    "from": "sender",
}
_TIMES = {"within": "within_ms", "delay": "delay_ms"}


def parse_trigger(text: str) -> tuple[str, Trigger]:
    """(the nemesis whose faults it is for, "" for all; the trigger). Raises UsageError."""
    nemesis, colon, rest = text.partition(":")
    if not colon:
        nemesis, rest = "", text
    else:
        check_nemesis(nemesis)
    condition, *options = (word.strip() for word in rest.split(","))
    name, _, value = condition.partition("=")
    fields: dict[str, Any]
    if name in OBSERVED and (not value or name == "master"):
        fields = {"kind": "observed", "what": name, "node": value}
    elif name == "syncs":
        fields = {"kind": "syncs", "count": _whole(text, value)}
    elif name in OF_FAULTS:
        fields = {"kind": "fault", "what": name, "fault": _whole(text, value)}
    elif name == "event" and value:
        fields = {"kind": "event", "what": value}
    elif name in ("disk", "message") and value:
        what = "" if name == "message" and value == ANY else value
        fields = {"kind": name, "what": what, "moment": "after"}
    else:
        raise UsageError(f"--trigger {text}: there is no condition {condition!r}; {_EXAMPLE}")
    for option in options:
        key, _, said = option.partition("=")
        if key in _TIMES and said:
            fields[_TIMES[key]] = parse_duration_ms(f"--trigger {text}: {key}", said)
        elif key == "since" and name not in (*OF_FAULTS, "syncs"):
            fields["fault"] = _whole(text, said)
        elif key == "count" and name != "syncs":
            fields["count"] = _whole(text, said)
        elif key == "moment" and said in MOMENTS.get(fields["kind"], ()):
            fields[key] = said
        elif key in _FIELDS and said and not fields.get(_FIELDS[key]):
            fields[_FIELDS[key]] = said
        else:
            raise UsageError(f"--trigger {text}: {option!r} means nothing here; {_EXAMPLE}")
    return nemesis, Trigger(**fields)


def _whole(text: str, number: str) -> int:
    if not number.isdigit() or int(number) == 0:
        raise UsageError(f"--trigger {text}: {number!r} is no number above 0; {_EXAMPLE}")
    return int(number)


def with_triggers(actions: Sequence[FaultAction], words: Iterable[str]) -> tuple[FaultAction, ...]:
    """The schedule with triggers; the last one that is for an action counts.

    A fault that waits for a trigger does not wait for the cluster to have synchronised: the trigger
    says when it comes. Raises UsageError for a trigger that is for none of them.
    """
    waiting = list(actions)
    for text in words:
        nemesis, trigger = parse_trigger(text)
        hit = [i for i, each in enumerate(waiting) if _is_for(nemesis, each)]
        if not hit:
            raise UsageError(
                f"--trigger {text}: the schedule has no fault that it could be for; name one of the"
                " nemeses of --nemesis, or none"
            )
        for i in hit:
            waiting[i] = msgspec.structs.replace(waiting[i], when=trigger, settle=False)
    return tuple(waiting)


def _is_for(nemesis: str, action: FaultAction) -> bool:
    return nemesis in ("", action.kind, FAULTS.find(action.kind).group)


def trigger_text(trigger: Trigger) -> str:
    """What is waited for, in the words of ``--trigger``."""
    if trigger.kind == "syncs":
        words = [f"syncs={trigger.count}"]
    elif trigger.kind == "fault":
        words = [f"{trigger.what}={trigger.fault}"]
    else:
        named = trigger.kind != "observed"
        words = [f"{trigger.kind}={trigger.what or ANY}" if named else trigger.what]
    for name, field in _FIELDS.items():
        if said := getattr(trigger, field):
            words.append(f"{name}={said}")
    if trigger.kind != "fault" and trigger.fault:
        words.append(f"since={trigger.fault}")
    if trigger.kind != "syncs" and trigger.count > 1:
        words.append(f"count={trigger.count}")
    if trigger.moment:
        words.append(f"moment={trigger.moment}")
    if trigger.delay_ms:
        words.append(f"delay={trigger.delay_ms}ms")
    return ",".join(words)


def needs_of(action: FaultAction) -> tuple[Capability, ...]:
    """What a world must be able to wait for."""
    needs = [need for when in action.triggers for need in _NEEDS.get(when.kind, ())]
    holds = any(when.moment for when in action.triggers)
    return (*needs, "hold") if holds else tuple(needs)


def check_triggers(action: FaultAction, nodes: Sequence[str], ids: Sequence[int]) -> None:
    """Refuse what never happens. ``ids``: of the plan's faults. Raises UsageError."""
    moment = action.when.moment if action.when is not msgspec.UNSET else ""
    if action.target == THERE and (action.when is msgspec.UNSET or not _tells_node(action.when)):
        raise UsageError(
            f"fault {action.id} hits the node where its trigger fires, and waits for none that"
            " nodes fire"
        )
    if moment and action.nodes is None and action.target != THERE:
        raise UsageError(
            f"fault {action.id} comes in a moment in which nodes stand still: they can't be asked"
            f" who is {action.target}. Name nodes, or give the target {THERE}"
        )
    for when in action.triggers:
        _check_trigger(action, when, nodes)
        if when.kind != "fault" and when.fault and when.fault not in ids:
            raise UsageError(
                f"fault {action.id} waits for what happens after fault {when.fault}, which"
                " is no fault of the plan"
            )
        if when.kind == "fault" and (when.fault not in ids or when.what not in OF_FAULTS):
            raise UsageError(
                f"fault {action.id} waits for fault {when.fault} to have {when.what}: give what is"
                " begun or ended, and the id of another fault of the plan"
            )


def _tells_node(when: Trigger) -> bool:
    return when.kind != "fault"


def check_order(actions: Iterable[FaultAction]) -> None:
    """Refuse faults that wait for each other in a ring. Raises UsageError."""
    waits = {
        action.id: action.when.fault
        for action in actions
        if action.when is not msgspec.UNSET and action.when.fault
    }
    for first in waits:
        passed = [first]
        while (after := waits.get(passed[-1])) is not None:
            if after in passed:
                ring = ", ".join(map(str, passed))
                raise UsageError(f"the faults {ring} wait for each other, so that none ever comes")
            passed.append(after)


def _check_trigger(action: FaultAction, when: Trigger, nodes: Sequence[str]) -> None:
    if when.node and when.node not in nodes:
        raise UsageError(f"fault {action.id} waits for {when.node}, which is no node of the plan")
    if when.kind == "observed" and when.what not in OBSERVED:
        raise UsageError(
            f"fault {action.id} waits for {when.what!r}, which can't be observed: choose one of"
            f" {', '.join(OBSERVED)}"
        )
    if when.kind == "event" and not when.what:
        raise UsageError(f"fault {action.id} waits for an event: name its kind")
    if when.moment not in MOMENTS.get(when.kind, ("",)) or (when.moment and when.delay_ms):
        moments = " or ".join(filter(None, MOMENTS.get(when.kind, ()))) or "none"
        raise UsageError(
            f"fault {action.id}: a trigger of kind {when.kind} has the moment {moments}, without a"
            " delay"
        )
    if when.sender and when.sender not in nodes:
        raise UsageError(f"fault {action.id} waits for {when.sender}, which is no node of the plan")
    if when.kind == "disk" and when.what not in CALLS:
        raise UsageError(f"fault {action.id} waits for a disk to do one of {', '.join(CALLS)}")
    if when.role and when.kind != "event":
        raise UsageError(f"fault {action.id}: only a trigger of kind event has a role")


def check_told(actions: Iterable[FaultAction], system: System) -> None:
    """Refuse what nodes of the system never tell. Raises UsageError."""
    for action in actions:
        for when in action.triggers:
            if when.kind == "event" and not isinstance(system, WritesEvents):
                raise UsageError(
                    f"fault {action.id} waits for an event, and nodes of {system.name} write none"
                    " while they run: wait for master or shrinks, or for syncs"
                )
            if when.kind == "message" and not (
                isinstance(system, NamesMessages) and when.what in ("", *system.message_names)
            ):
                names = system.message_names if isinstance(system, NamesMessages) else ()
                raise UsageError(
                    f"fault {action.id} waits for a message {when.what}, and nodes of {system.name}"
                    f" say no such thing that could be seen; {', '.join(names) or 'nothing is'}"
                )
            if when.what == "synchronising" and not isinstance(system, TellsSynchronisations):
                raise UsageError(
                    f"fault {action.id} waits for a synchronisation, and {system.name} tells of"
                    " none: wait for shrinks, or for an event"
                )
