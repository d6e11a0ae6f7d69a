"""Small systems that are right, as clients see them, and changes that make histories wrong."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

from tests.checkers.judges.written import (
    Call,
    Running,
    Step,
    Value,
    changed,
    done,
    reads_of,
)

History = list[Step]
Change = Callable[[History, random.Random], History]


def bank_history(rng: random.Random) -> History:
    balances = {0: 10, 1: 10, 2: 10}

    def next_call(process: int) -> Call:
        if rng.random() < 0.5:
            return Call("read", None)
        one, other = rng.sample(range(3), 2)
        return Call("transfer", {":from": one, ":to": other, ":amount": rng.randrange(1, 6)})

    def effect(process: int, call: Call) -> Value:
        if call.f == "read":
            return dict(balances)
        amount = min(call.argument[":amount"], balances[call.argument[":from"]])
        balances[call.argument[":from"]] -= amount
        balances[call.argument[":to"]] += amount
        return call.argument

    return Running(rng, next_call, effect).run(20)


def wrong_bank(history: History, rng: random.Random) -> History:
    if not (reads := reads_of(history)):
        return history
    at = rng.choice(reads)
    balances = dict(history[at].value)
    one, other = rng.sample(range(3), 2)
    match rng.randrange(4):
        case 0:
            balances[one] += rng.choice((-3, 5))
        case 1:
            balances[one] = None
        case 2:
            balances[other] += balances[one] + 4
            balances[one] = -4
        case _:
            balances[7] = 0
    return changed(history, at, balances)


def collection_history(
    rng: random.Random, f: str, kind: type = list, reads: float = 0.5
) -> History:
    """A set that grows, or a log: ``f`` is add, append or write."""
    held: list[int] = []
    fresh = itertools.count(1)

    def next_call(process: int) -> Call:
        return Call("read", None) if rng.random() < 0.5 else Call(f, next(fresh))

    def effect(process: int, call: Call) -> Value:
        if call.f == "read":
            return kind(held)
        held.append(call.argument)
        return call.argument

    return Running(rng, next_call, effect).run(20)


def wrong_collection(history: History, rng: random.Random) -> History:
    """Some reads show less, or more, or another order."""
    reads = reads_of(history)
    for at in rng.sample(reads, min(len(reads), rng.randrange(1, 3))):
        value = history[at].value
        shown = list(value)
        choice = rng.randrange(5)
        if choice == 0:
            shown.append(rng.randrange(90, 99))
        elif choice == 1 and shown and isinstance(value, list):
            shown.append(rng.choice(shown))
        elif choice == 2 and len(shown) > 1:
            one, other = rng.sample(range(len(shown)), 2)
            shown[one], shown[other] = shown[other], shown[one]
        elif shown:
            shown.remove(rng.choice(shown))
        history = changed(history, at, type(value)(shown))
    return history


def gone_for_good(history: History, rng: random.Random) -> History:
    """One element is in no read from some step on."""
    values = [value for at in reads_of(history) for value in history[at].value]
    if not values:
        return history
    lost, since = rng.choice(values), rng.randrange(len(history))
    for at in reads_of(history):
        if at >= since:
            value = history[at].value
            history = changed(history, at, type(value)(each for each in value if each != lost))
    return history


def counter_history(rng: random.Random) -> History:
    held = [0]

    def next_call(process: int) -> Call:
        return Call("read", None) if rng.random() < 0.5 else Call("add", rng.randrange(-2, 5))

    def effect(process: int, call: Call) -> Value:
        held[0] += call.argument or 0
        return held[0] if call.f == "read" else call.argument

    return Running(rng, next_call, effect).run(20)


def wrong_number(
    f: str, *, least: int = -6, most: int = 6
) -> Callable[[History, random.Random], History]:
    def wrong(history: History, rng: random.Random) -> History:
        if not (reads := reads_of(history, f)):
            return history
        at = rng.choice(reads)
        return changed(history, at, history[at].value + rng.randrange(least, most + 1))

    return wrong


def ids_history(rng: random.Random) -> History:
    fresh = itertools.count()
    return Running(
        rng, lambda process: Call("generate", None), lambda process, call: next(fresh)
    ).run(15)


def queue_history(rng: random.Random) -> History:
    held: list[int] = []
    fresh = itertools.count(1)

    def next_call(process: int) -> Call:
        return Call("dequeue", None) if rng.random() < 0.5 else Call("enqueue", next(fresh))

    def effect(process: int, call: Call) -> Value:
        if call.f == "enqueue":
            held.append(call.argument)
            return call.argument
        return held.pop(rng.randrange(len(held))) if held else None

    # What a crashed dequeue took is gone: none crashes here, and those that are open return.
    running = Running(rng, next_call, effect, crash=0)
    history = running.run(20)
    running.finish()
    return [*history, *done(99, "drain", list(held))]


def wrong_queue(history: History, rng: random.Random) -> History:
    at = rng.choice([*reads_of(history, "dequeue"), *reads_of(history, "drain")])
    step = history[at]
    if step.f == "dequeue":
        return changed(history, at, rng.choice([None, 95, rng.randrange(1, 12)]))
    shown = list(step.value)
    if shown and rng.random() < 0.5:
        shown.remove(rng.choice(shown))
    else:
        shown.append(rng.randrange(1, 14))
    return changed(history, at, shown)


def forks_history(rng: random.Random) -> History:
    """Groups of three keys, each written once."""
    held: dict[int, int] = {}
    fresh = itertools.count()
    begun: list[int] = [0]

    def next_call(process: int) -> Call:
        if rng.random() < 0.4:
            key = next(fresh)
            begun.append(key)
            return Call("write", [[":w", key, 1]])
        first = rng.choice(begun) // 3 * 3
        keys = rng.sample(range(first, first + 3), 3)
        return Call("read", [[":r", key, None] for key in keys])

    def effect(process: int, call: Call) -> Value:
        if call.f == "write":
            held[call.argument[0][1]] = 1
            return call.argument
        return [[":r", key, held.get(key)] for _, key, _ in call.argument]

    return Running(rng, next_call, effect).run(24)


def wrong_forks(history: History, rng: random.Random) -> History:
    if not (reads := reads_of(history)):
        return history
    at = rng.choice(reads)
    mops = [list(mop) for mop in history[at].value]
    mop = rng.choice(mops)
    mop[2] = None if mop[2] else 1
    return changed(history, at, mops)


def register_history(rng: random.Random, *, increments: bool = False) -> History:
    """A register whose values are written once each; or one that is only incremented."""
    held: list[Value] = [0 if increments else None]
    fresh = itertools.count(1)

    def next_call(process: int) -> Call:
        if rng.random() < 0.5:
            return Call("read", None)
        return Call("inc", None) if increments else Call("write", next(fresh))

    def effect(process: int, call: Call) -> Value:
        if call.f == "inc":
            held[0] += 1
        elif call.f == "write":
            held[0] = call.argument
        return held[0]

    return Running(rng, next_call, effect).run(20)


def wrong_register(history: History, rng: random.Random) -> History:
    if not (reads := reads_of(history)):
        return history
    for at in rng.sample(reads, min(len(reads), 2)):
        others = [step.value for step in history[:at] if step.f == "write"]
        history = changed(history, at, rng.choice([None, *others]))
    return history


def maps_history(rng: random.Random) -> History:
    held = {":x": 0, ":y": 0, ":z": 0}

    def next_call(process: int) -> Call:
        if rng.random() < 0.5:
            return Call("read", None)
        return Call("inc", rng.choice(list(held)))

    def effect(process: int, call: Call) -> Value:
        if call.f == "inc":
            held[call.argument] += 1
            return {call.argument: held[call.argument]}
        keys = rng.sample(list(held), rng.randrange(1, 4))
        return {key: held[key] for key in keys}

    return Running(rng, next_call, effect).run(12)


def wrong_maps(history: History, rng: random.Random) -> History:
    if not (reads := reads_of(history)):
        return history
    at = rng.choice(reads)
    state = dict(history[at].value)
    key = rng.choice(list(state))
    state[key] = max(0, state[key] + rng.choice((-2, -1, 1)))
    return changed(history, at, state)


def replicas_history(rng: random.Random) -> History:
    """A log of which replicas know beginnings."""
    log: list[int] = []
    known = {":a": 0, ":b": 0}
    fresh = itertools.count(1)

    def next_call(process: int) -> Call:
        return Call("read", None) if rng.random() < 0.5 else Call("append", next(fresh))

    def effect(process: int, call: Call) -> Value:
        if call.f == "append":
            log.append(call.argument)
            return call.argument
        replica = rng.choice(list(known))
        known[replica] = rng.randrange(known[replica], len(log) + 1)
        return [replica, log[: known[replica]]]

    return Running(rng, next_call, effect).run(20)


def wrong_replicas(history: History, rng: random.Random) -> History:
    if not (reads := reads_of(history)):
        return history
    at = rng.choice(reads)
    replica, log = history[at].value
    (wrong,) = (
        step.value for step in wrong_collection(done(0, "read", log), rng) if step.type == "ok"
    )
    return changed(history, at, [replica, wrong])
