"""Histories of consumer groups put together by hand, by the contract of
docs/reference/consumers.md.

Times are seconds. The load lasts for 60 s, everything is healed at 62 s, and from 65.2 s on, when
no member is left, every queue is read and every group's offset asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from shalott.checkers.checker import Result
from shalott.checkers.groups.group_checkers import group_checkers
from shalott.checkers.groups.group_rules import Group, GroupRules
from shalott.checkers.runs.compose import check_all
from shalott.core.history import History
from tests.checkers.histories import NODES, Story

QUEUE = "t/0"
CONCURRENT = Group(name="c", topics=("t",), max_reconsume=2)
ORDERLY = Group(name="o", topics=("t",), orderly=True, max_reconsume=2)
TAGGED = Group(name="a", topics=("t",), tags=("x",), max_reconsume=2)
BROADCAST = Group(name="b", topics=("t",), broadcast=True)
LEVELS_MS = (1000, 5000, 10_000)
CLOSING = 65.0


def rules_for(*groups: Group, **more: Any) -> GroupRules:
    settings: dict[str, Any] = {
        "queues": (QUEUE,),
        "levels_ms": LEVELS_MS,
        "first_retry_level": 1,
        "stuck_after_ms": 2000,
    }
    return GroupRules(groups=groups, **(settings | more))


def retry(group: str) -> str:
    return f"%RETRY%{group}/0"


def dead(group: str) -> str:
    return f"%DLQ%{group}/0"


class Told:
    """What some groups did. One node is master throughout, unless a test says otherwise."""

    def __init__(self, *groups: Group, master: bool = True, **more: Any) -> None:
        self.rules = rules_for(*groups, **more)
        self.story = Story(queue=QUEUE).phases()
        self.logs: dict[str, list[tuple[int, int]]] = {QUEUE: []}
        self.offsets: dict[tuple[str, str], int | None] = {}
        for group in groups:
            if not group.broadcast:
                self.logs |= {retry(group.name): [], dead(group.name): []}
        if master:
            self.story.role("n1", 0, "master", group="shalott")

    # -- producers and logs ------------------------------------------------------------------------

    def send(
        self,
        value: int,
        at: float,
        *,
        kind: str = "ok",
        tag: str = "x",
        delay: int = 0,
        key: str = QUEUE,
        logged: bool = True,
    ) -> Told:
        """``logged``: it is at the end of its queue's log, from then on."""
        log = self.logs.setdefault(key, [])
        offset = len(log)
        if logged:
            log.append((offset, value))
        extra: dict[str, Any] = {"tag": tag} | ({"delay": delay} if delay else {})
        told = offset if kind == "ok" and not delay else None
        self.story.row("send", at, kind=kind, value=value, offset=told, key=key, extra=extra)
        return self

    def sends(self, count: int, *, at: float = 1.0, first: int = 100, tag: str = "x") -> Told:
        """One each tenth of a second."""
        for number in range(count):
            self.send(first + number, at + number / 10, tag=tag)
        return self

    def log(self, key: str, *values: int) -> Told:
        """These are in that queue too."""
        log = self.logs.setdefault(key, [])
        for value in values:
            log.append((len(log), value))
        return self

    # -- members -----------------------------------------------------------------------------------

    def member(
        self,
        name: str,
        begin: float = 0.5,
        end: float | None = CLOSING,
        ended: str = "left",
    ) -> Told:
        """A name is its group's, a dot and a number."""
        group = self._group(name)
        extra = {
            "member": name, "group": group.name, "broadcast": group.broadcast,
            "orderly": group.orderly, "tags": list(group.tags), "ended": ended,
        }  # fmt: skip
        took = None if end is None else end - begin
        self.story.row("member", begin, took=took, key=group.name, extra=extra, process=50)
        return self

    def assigned(
        self,
        name: str,
        begin: float = 0.6,
        end: float | None = CLOSING,
        *,
        offset: int = 0,
        why: str = "committed",
        ended: str = "left",
        key: str = QUEUE,
    ) -> Told:
        took = None if end is None else end - begin
        return self._row(
            "assignment", name, begin, took=took, offset=offset, key=key, why=why, ended=ended
        )

    def given(
        self,
        name: str,
        value: int | None,
        offset: int,
        at: float,
        outcome: str = "success",
        *,
        took: float | None = 0.01,
        reconsumed: int = 0,
        key: str = QUEUE,
        **more: Any,
    ) -> Told:
        said = {"outcome": outcome} if outcome else {}
        kind = "ok" if outcome else "info"
        return self._row(
            "deliver", name, at, took=took, offset=offset, key=key, value=value, kind=kind,
            reconsumed=reconsumed, redelivered=reconsumed > 0, **said, **more,
        )  # fmt: skip

    def consumes(
        self, name: str, first: int, end: int, at: float, *, each: float = 0.1, base: int = 100
    ) -> Told:
        """Offsets from ``first`` to before ``end``, of values from ``base`` on."""
        for number in range(first, end):
            self.given(name, base + number, number, at + (number - first) * each)
        return self

    def sent_back(
        self,
        name: str,
        value: int,
        offset: int,
        at: float,
        *,
        level: int = 1,
        reconsumed: int = 0,
        kind: str = "ok",
        key: str = QUEUE,
    ) -> Told:
        return self._row(
            "send-back", name, at, value=value, offset=offset, kind=kind, key=key, level=level,
            reconsumed=reconsumed,
        )  # fmt: skip

    def commits(
        self, name: str, offset: int, at: float, *, kind: str = "ok", key: str = QUEUE, **more: Any
    ) -> Told:
        """Counts as the group's offset at the end, unless ``ends_at`` says otherwise."""
        if kind == "ok":
            self.offsets[self._group(name).name, key] = offset
        return self._row("commit", name, at, offset=offset, kind=kind, key=key, **more)

    def locks(self, name: str, at: float, held: bool = True, key: str = QUEUE) -> Told:
        return self._row("lock", name, at, key=key, held=held)

    def moved(self, name: str, at: float, offset: int, key: str = QUEUE) -> Told:
        return self._row("moved", name, at, key=key, offset=offset)

    def reset(self, group: str, at: float, offset: int, kind: str = "ok", key: str = QUEUE) -> Told:
        if kind == "ok":
            self.offsets[group, key] = offset
        self.story.row("reset", at, kind=kind, offset=offset, key=key, extra={"group": group})
        return self

    def ends_at(self, group: str, offset: int | None, key: str = QUEUE) -> Told:
        self.offsets[group, key] = offset
        return self

    def failover(self, at: float, new: str = "n2", old: str = "n1") -> Told:
        """The old master is killed, and the new one rules a second later."""
        self.story.fault(9, "kill", at, at + 4, nodes=(old,))
        self.story.role(new, at + 1, "master", 2, group="shalott")
        return self

    def _group(self, member: str) -> Group:
        name = member.partition(".")[0]
        return next(group for group in self.rules.groups if group.name == name)

    def _row(
        self,
        f: str,
        name: str,
        at: float,
        *,
        took: float | None = 0.01,
        offset: int | None = None,
        value: int | None = None,
        key: str = QUEUE,
        kind: str = "ok",
        redelivered: bool | None = None,
        error: str | None = None,
        **said: Any,
    ) -> Told:
        extra = {"member": name, "group": self._group(name).name, **said}
        self.story.row(
            f, at, took=took, offset=offset, value=value, key=key, kind=kind, extra=extra,
            redelivered=redelivered, error=error, process=50,
        )  # fmt: skip
        return self

    # -- the end -----------------------------------------------------------------------------------

    def history(self, *, unread: Sequence[str] = (), untold: Sequence[str] = ()) -> History:
        """With everything read at the end but ``unread`` keys, and the offsets of all groups but
        ``untold``. May be called once."""
        for key, log in self.logs.items():
            if key in unread:
                continue
            for node in NODES:
                self._polls(key, node, log)
        for group in self.rules.groups:
            if group.broadcast or group.name in untold:
                continue
            for key in [
                key for key in self.logs if key.startswith("t") or key == retry(group.name)
            ]:
                offset = self.offsets.get((group.name, key))
                extra = {"group": group.name}
                self.story.row("final-offset", 65.6, offset=offset, key=key, extra=extra)
        return self.story.history()

    def _polls(self, key: str, node: str, log: Sequence[tuple[int, int]]) -> None:
        who: dict[str, Any] = {"process": 10, "node": node, "key": key}
        if log:
            extra = {"from": 0, "records": [list(each) for each in log]}
            self.story.row("poll", 65.2, extra=extra, value=0, **who)
        extra = {"from": len(log), "records": []}
        self.story.row("poll", 65.3, kind="fail", error="empty", extra=extra, **who)


def judged(told: Told, **more: Any) -> Mapping[str, Result]:
    """Every checker's result."""
    verdict = check_all(group_checkers(told.rules), told.history(**more))
    for result in verdict.results:
        assert not any("crashed" in note for note in result.notes), result.notes
        assert msgspec.json.encode(result)  # results.json takes no numbers of numpy's
    return {result.checker: result for result in verdict.results}


def broken(told: Told, **more: Any) -> dict[str, tuple[str, ...]]:
    """The checkers that are not content, each with the kinds of what it found."""
    results = judged(told, **more)
    return {
        name: tuple(anomaly.kind for anomaly in result.anomalies)
        for name, result in results.items()
        if result.valid is not True
    }
