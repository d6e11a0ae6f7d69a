"""Histories of partitions, written down as EDN for tests, and what the judge says of them."""

from __future__ import annotations

from collections.abc import Sequence

from shalott.checkers.checker import Anomaly, Result
from shalott.checkers.judge import Limits, make_judge
from shalott.checkers.reading.entries import EntrySource

Line = tuple[int, str, str, str]  # process, type, f, value as EDN


def text_of(lines: Sequence[Line]) -> bytes:
    """Each line with its place as index and as time."""
    return "".join(
        f"{{:index {at} :time {at} :process {process} :type :{type_} :f :{f} :value {value}}}\n"
        for at, (process, type_, f, value) in enumerate(lines)
    ).encode()


def judged(lines: Sequence[Line], options: str = "") -> Result:
    judge = make_judge(f"kafka:{options}")
    return judge.judge(EntrySource.of_text(text_of(lines)), Limits())


def of_kind(result: Result, kind: str) -> list[Anomaly]:
    return [each for each in result.anomalies if each.kind == kind]


def kinds(result: Result) -> set[str]:
    """Errors, and what is permitted."""
    return {*result.detail["broken"], *result.detail["permitted"]}


def call(process: int, f: str, asked: str, type_: str, answer: str) -> list[Line]:
    return [(process, "invoke", f, asked), (process, type_, f, answer)]


def sent(process: int, *sends: str, type_: str = "ok") -> list[Line]:
    """Each send as "x 5" (no offset is told) or "x [3 5]"; asked for without its offset."""
    mops = [f"[:send {send}]" for send in sends]
    asked = [f"[:send {send.split()[0]} {send.split()[-1].rstrip(']')}]" for send in sends]
    return call(process, "send", f"[{' '.join(asked)}]", type_, f"[{' '.join(mops)}]")


def polled(process: int, *polls: str, type_: str = "ok", f: str = "poll") -> list[Line]:
    """Each poll as "x [[0 1] [1 2]] y [[5 6]]": what it returned."""
    mops = " ".join(f"[:poll {{{poll}}}]" for poll in polls)
    asked = " ".join("[:poll]" for _ in polls)
    return call(process, f, f"[{asked}]", type_, f"[{mops}]")


def named(process: int, f: str, keys: str, type_: str = "ok") -> list[Line]:
    return call(process, f, f"[{keys}]", type_, f"[{keys}]")
