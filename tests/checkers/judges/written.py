"""Histories as tests write them, and what a judge says of them.

An operation is written as one or two steps: ``invoke(0, "add", 1)`` and ``ok(0, "add", 1)``, or
both at once by ``done``. Values are Python's: a list is a vector, a dict a map, a set a set; a
string that begins with a colon is a keyword.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from shalott.checkers.checker import Result
from shalott.checkers.judge import Limits, make_judge
from shalott.checkers.reading.entries import EntrySource

Value = Any  # what EDN can say


class Step(NamedTuple):
    type: str
    process: int
    f: str
    value: Value = None
    extra: str = ""  # further fields, as EDN


def invoke(process: int, f: str, value: Value = None, extra: str = "") -> Step:
    return Step("invoke", process, f, value, extra)


def ok(process: int, f: str, value: Value = None, extra: str = "") -> Step:
    return Step("ok", process, f, value, extra)


def fail(process: int, f: str, value: Value = None, extra: str = "") -> Step:
    return Step("fail", process, f, value, extra)


def info(process: int, f: str, value: Value = None, extra: str = "") -> Step:
    return Step("info", process, f, value, extra)


READS = ("read", "dequeue", "drain", "generate", "read-init", "inc")


def done(process: int, f: str, value: Value = None, extra: str = "") -> list[Step]:
    """An operation that succeeded; one that reads was invoked with nil."""
    asked = None if f in READS else value
    return [invoke(process, f, asked, extra), ok(process, f, value, extra)]


def steps(*parts: Step | list[Step]) -> list[Step]:
    flat: list[Step] = []
    for part in parts:
        flat += [part] if isinstance(part, Step) else part
    return flat


def edn(value: Value) -> str:
    if value is None:
        return "nil"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return value if value.startswith(":") else f'"{value}"'
    if isinstance(value, dict):
        return f"{{{' '.join(f'{edn(key)} {edn(each)}' for key, each in value.items())}}}"
    if isinstance(value, set | frozenset):
        return f"#{{{' '.join(map(edn, sorted(value, key=str)))}}}"
    if isinstance(value, list | tuple):
        return f"[{' '.join(map(edn, value))}]"
    return str(value)


def text_of(history: Iterable[Step]) -> bytes:
    lines = []
    for index, step in enumerate(history):
        lines.append(
            f"{{:type :{step.type}, :process {step.process}, :f :{step.f},"
            f" :value {edn(step.value)}, :index {index}, :time {index * 1_000_000} {step.extra}}}\n"
        )
    return "".join(lines).encode()


def judged(judge: str, *history: Step | list[Step], limits: Limits | None = None) -> Result:
    source = EntrySource.of_text(text_of(steps(*history)))
    return make_judge(judge).judge(source, limits or Limits())


def kinds_of(result: Result) -> set[str]:
    return {anomaly.kind for anomaly in result.anomalies}


# --- single operations ----------------------------------------------------------------------------


def read(value: object, process: int = 1) -> list[Step]:
    return done(process, "read", value)


def add(value: object, process: int = 0) -> list[Step]:
    return done(process, "add", value)


def write(value: object, process: int = 0) -> list[Step]:
    return done(process, "write", value)


def append(value: object, process: int = 0) -> list[Step]:
    return done(process, "append", value)


def put(value: object) -> list[Step]:
    return done(0, "enqueue", value)


def failed(f: str, value: object) -> list[Step]:
    return [invoke(5, f, value), fail(5, f, value)]


def crashed(f: str, value: object = None) -> list[Step]:
    return [invoke(6, f, value), info(6, f, value)]


def keyed(key: str, value: object) -> list[Step]:
    return [invoke(1, "read", [key, None]), ok(1, "read", [key, value])]


def linked(f: str, value: object, link: object, position: int) -> list[Step]:
    told = f":position {position} :link {link}"
    return [invoke(0, f), ok(0, f, value, told)]


def row(value: int, time: int, process: int = 0) -> dict[str, int]:
    return {":val": value, ":sts": time, ":process": process}


def of_node(node: str, log: list[int]) -> dict[str, object]:
    return {":node": node, ":log": log}


def mops(**values: int | None) -> list[list[object]]:
    return [[":r", key, value] for key, value in values.items()]


# --- systems that are right -----------------------------------------------------------------------


class Call(NamedTuple):
    f: str
    argument: Value


@dataclass(slots=True)
class Running:
    """Clients of an object that does one operation after the other: every operation takes effect at
    an instant between its two steps. Some crash, before or behind that instant; some fail."""

    rng: random.Random
    next_call: Callable[[int], Call]
    effect: Callable[[int, Call], Value]  # of a process: what it returns
    processes: int = 3
    crash: float = 0.08
    fail: float = 0.08
    history: list[Step] = field(default_factory=list)
    open_ones: dict[int, list[Value]] = field(default_factory=dict)

    def finish(self) -> None:
        """What happened already returns."""
        for process, (call, happened, result) in self.open_ones.items():
            if happened:
                self.history.append(ok(process, call.f, result))
        self.open_ones.clear()

    def run(self, count: int) -> list[Step]:
        rng, open_ones = self.rng, self.open_ones
        processes = list(range(self.processes))
        for _ in range(count * 3):
            at = rng.randrange(len(processes))
            process = processes[at]
            if process not in open_ones:
                call = self.next_call(process)
                self.history.append(invoke(process, call.f, call.argument))
                open_ones[process] = [call, False, None]
                continue
            call, happened, result = open_ones[process]
            if not happened:
                luck = rng.random()
                if luck < self.fail:
                    self.history.append(fail(process, call.f, call.argument))
                    del open_ones[process]
                elif luck < self.fail + self.crash:
                    if rng.random() < 0.5:
                        self.effect(process, call)
                    self.history.append(info(process, call.f, call.argument))
                    del open_ones[process]
                    processes[at] += self.processes
                else:
                    open_ones[process] = [call, True, self.effect(process, call)]
            else:
                self.history.append(ok(process, call.f, result))
                del open_ones[process]
        return self.history


def last_read(history: list[Step], process: int, f: str, value: Value) -> list[Step]:
    return [*history, invoke(process, f), ok(process, f, value)]


def changed(history: Sequence[Step], at: int, value: Value) -> list[Step]:
    """The history with another value in one step."""
    copy = list(history)
    copy[at] = copy[at]._replace(value=value)
    return copy


def reads_of(history: Sequence[Step], f: str = "read") -> list[int]:
    return [at for at, step in enumerate(history) if step.type == "ok" and step.f == f]
