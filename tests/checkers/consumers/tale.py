"""Histories of consumers, put together by hand: the rows of docs/reference/consumers.md. Times are
seconds.

A tale has a calm beginning: n1 is master of its queues from 0.2 s to the end, unless it is told
otherwise, and every publish is confirmed within 10 ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shalott.checkers.checker import Result
from shalott.checkers.consumers.consume_rules import ConsumeRules, QueueRules
from shalott.checkers.consumers.consumer_checkers import consumer_checkers
from tests.checkers.histories import NODES, Story, ns

CHECKERS = tuple(checker.name for checker in consumer_checkers(ConsumeRules(queues=())))


class Tale(Story):
    """Rows are written in any order; tags count up by themselves."""

    def __init__(self, *queues: QueueRules, ruled: bool = True, **rules: Any) -> None:
        super().__init__("q")
        self.rules = ConsumeRules(queues=queues or (QueueRules(name="q"),), **rules)
        self.tags: dict[str, int] = {}
        self.phases()
        if ruled:
            for each in self.rules.queues:
                self.master("n1", 0.2, 66, queue=each.name)

    # -- the cluster -------------------------------------------------------------------------------

    def master(
        self,
        node: str,
        begin: float,
        end: float,
        epoch: int = 1,
        queue: str = "q",
        how: str = "declared",
    ) -> Tale:
        """``end``: the last word of that node."""
        self.role(node, begin, "master", epoch, group=queue, started_as=how)
        self.acked(node, end, end + 0.01, epoch, group=queue)
        return self

    # -- publishers --------------------------------------------------------------------------------

    def publish(self, *values: int, at: float = 2, kind: str = "ok", **more: Any) -> Tale:
        """One after the other, 20 ms apart. ``to``, ``ttl_ms``, ``priority`` go into extra."""
        for number, value in enumerate(values):
            extra = {key: more[key] for key in ("to", "ttl_ms", "priority") if key in more}
            rest = {key: each for key, each in more.items() if key not in extra}
            self.row(
                "enqueue", at + number * 0.02, kind=kind, value=value, extra=extra or None, **rest
            )
        return self

    # -- consumers ---------------------------------------------------------------------------------

    def consumer(
        self,
        name: str,
        begin: float = 0.5,
        end: float = 63,
        *,
        queue: str = "q",
        channel: str | None = None,
        ended: str = "cancelled",
        leaving: float | None = None,
        active: float | None = -1,
        channel_end: float | None = -1,
        channel_ended: str | None = None,
        **said: Any,
    ) -> Tale:
        """With its channel, if that has no name. ``active`` None: consume-ok never came."""
        own = channel is None
        channel = f"ch-{name}" if channel is None else channel
        if ended == "cancelled" and leaving is None:
            leaving = end - 0.01
        where = {"process": said.pop("process")} if "process" in said else {}
        at = begin + 0.01 if active == -1 else active
        extra = {
            "consumer": name,
            "channel": channel,
            "prefetch": said.pop("prefetch", 0),
            **said,
            "active_ns": None if at is None else ns(at),
            "leaving_ns": None if leaving is None else ns(leaving),
            "ended": ended,
        }
        self.row("consumer", begin, took=end - begin, key=queue, extra=extra, **where)
        if own:
            over = {
                "cancelled": "closed",
                "cancelled-by-server": "closed",
                "refused": "channel-closed",
            }
            until = channel_end if channel_end != -1 else end
            if ended in over and channel_end == -1:
                until = max(end, 63.5)
            self.channel(channel, begin - 0.1, until, channel_ended or over.get(ended, ended))
        return self

    def channel(
        self, name: str, begin: float, end: float | None, ended: str, error: str | None = None
    ) -> Tale:
        took = None if end is None else end - begin
        extra = {"channel": name, "connection": f"of {name}", "ended": ended}
        self.row("channel", begin, took=took, key="", extra=extra, error=error)
        return self

    def deliver(
        self,
        value: int,
        at: float,
        to: str = "c",
        *,
        queue: str = "q",
        flagged: bool = False,
        tag: int | None = None,
        channel: str | None = None,
        deaths: Sequence[tuple[str, str]] = (),
        damaged: bool = False,
        **more: Any,
    ) -> int:
        """Returns the delivery's tag."""
        channel = f"ch-{to}" if channel is None else channel
        tag = self.tags.get(channel, 0) + 1 if tag is None else tag
        self.tags[channel] = max(self.tags.get(channel, 0), tag)
        extra = {"consumer": to, "channel": channel, "tag": tag, **more}
        if deaths:
            extra["deaths"] = _deaths(deaths)
        self.row(
            "deliver",
            at,
            took=0,
            value=None if damaged else value,
            error="corrupted" if damaged else None,
            key=queue,
            redelivered=flagged,
            extra=extra,
        )
        return tag

    def settle(
        self,
        what: str,
        at: float,
        tag: int,
        by: str = "c",
        *,
        queue: str = "q",
        took: float | None = 0.01,
        sure: bool = True,
        multiple: bool = False,
        requeue: bool = False,
        channel: str | None = None,
    ) -> Tale:
        """``what``: ack, nack or reject. With ``multiple`` the tag is the highest that it means."""
        extra: dict[str, Any] = {"channel": channel or f"ch-{by}", "tag": tag}
        if multiple:
            extra = {"channel": channel or f"ch-{by}", "tag": 0, "multiple": True, "upto": tag}
        if what != "ack":
            extra["requeue"] = requeue
        self.row(what, at, kind="ok" if sure else "info", took=took, key=queue, extra=extra)
        return self

    def ack(self, at: float, tag: int, by: str = "c", **more: Any) -> Tale:
        return self.settle("ack", at, tag, by, **more)

    def recover(self, at: float, upto: int, by: str = "c", sure: bool = True) -> Tale:
        extra = {"channel": f"ch-{by}", "upto": upto}
        self.row("recover", at, kind="ok" if sure else "info", key="", extra=extra)
        return self

    def consume(self, value: int, at: float, by: str = "c", **more: Any) -> Tale:
        """Delivered, and acknowledged 50 ms later."""
        queue = more.get("queue", "q")
        tag = self.deliver(value, at, by, **more)
        return self.ack(at + 0.05, tag, by, queue=queue, channel=more.get("channel"))

    # -- the end -----------------------------------------------------------------------------------

    def take(
        self,
        value: int,
        at: float = 65,
        *,
        queue: str = "q",
        flagged: bool = False,
        deaths: Sequence[tuple[str, str]] = (),
    ) -> Tale:
        """By basic.get, in the drain."""
        extra = {"deaths": _deaths(deaths)} if deaths else None
        self.row("dequeue", at, value=value, key=queue, redelivered=flagged, extra=extra)
        return self

    def emptied(self, *queues: str) -> Tale:
        """Every node says of every queue that it is empty."""
        for queue in queues or [each.name for each in self.rules.queues]:
            self.empty(65.5, NODES, key=queue)
        return self

    def results(self) -> dict[str, Result]:
        """Every checker's, drained if nothing else was said."""
        if not any(row["error"] == "empty" for row in self.rows):
            self.emptied()
        history = self.history()
        return {each.name: each.check(history) for each in consumer_checkers(self.rules)}

    def broken(self) -> dict[str, list[str]]:
        """By checker that says invalid: the kinds that broke it."""
        return {
            name: result.detail["broken"]
            for name, result in self.results().items()
            if result.valid is False
        }


def _deaths(deaths: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    return [{"queue": queue, "reason": reason, "count": 1} for queue, reason in deaths]
