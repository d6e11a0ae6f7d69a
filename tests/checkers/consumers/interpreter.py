"""Fates and settlements told row by row, as plainly as the definitions read: slow, and obvious."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from shalott.checkers.consumers.consume_rules import ConsumeRules, QueueRules
from shalott.core.history import History

MS = 1_000_000
FAR = 1 << 62
GONE = ("delete-queue", "purge-queue")


@dataclass
class Given:
    """One delivery, and what was said of it."""

    index: int
    key: str
    value: int | None
    at_ns: int
    tag: int = 0
    deaths: list[dict[str, Any]] = field(default_factory=list)
    taken: bool = False
    said: str = "unsettled"
    ok: bool = False
    by: int = -1


@dataclass
class Message:
    queue: str
    value: int
    ack: str
    invoke_ns: int
    complete_ns: int
    ttl_ms: int | None
    given: list[Given] = field(default_factory=list)  # before it died
    dead: list[Given] = field(default_factory=list)


@dataclass
class Told:
    """``deliveries`` by history index."""

    deliveries: dict[int, Given]
    messages: dict[tuple[str, int], Message]
    fates: dict[tuple[str, int], str]


def interpret(history: History, rules: ConsumeRules) -> Told:
    rows = [{**row, "extra": json.loads(row["extra"] or "{}")} for row in history.ops.to_pylist()]
    silent = {
        row["extra"]["consumer"]
        for row in rows
        if row["f"] == "consumer" and row["extra"].get("no_ack")
    }
    deliveries = _settle(rows, silent)
    messages = _messages(rows)
    for given in deliveries.values():
        if (message := _origin(given, messages)) is not None:
            (message.dead if given.deaths else message.given).append(given)
    named = {queue.name: queue for queue in rules.queues}
    # Dead letters of a queue whose own are taken by something need not be found there.
    taking = {row["key"] for row in rows if row["f"] in GONE and row["type"] != "fail"}
    taking |= {given.key for given in deliveries.values() if given.said == "rejected"}
    fates = {
        key: _fate(message, named, rows, messages, taking)
        for key, message in messages.items()
        if message.ack == "ok"
    }
    return Told(deliveries, messages, fates)


def _settle(rows: list[dict[str, Any]], silent: set[str]) -> dict[int, Given]:
    """Walk through time: each channel has its unsettled deliveries by tag."""
    unsettled: dict[str, dict[int, Given]] = {}
    found: dict[int, Given] = {}
    for row in rows:
        extra, f = row["extra"], row["f"]
        if f == "deliver" or (f == "dequeue" and row["type"] == "ok"):
            given = Given(
                row["index"], row["key"], row["value"], row["complete_ns"],
                extra.get("tag", 0), extra.get("deaths", []), f == "dequeue",
            )  # fmt: skip
            found[row["index"]] = given
            if given.taken or extra["consumer"] in silent:
                given.said = "automatic"
            else:
                unsettled.setdefault(extra["channel"], {})[given.tag] = given
        elif f in ("ack", "nack", "reject", "recover") and row["type"] != "fail":
            own = unsettled.get(extra["channel"], {})
            meant = [extra.get("tag")]
            if "upto" in extra:
                meant = [tag for tag in own if tag <= extra["upto"]]
            said = "acknowledged" if f == "ack" else "recovered"
            if f in ("nack", "reject"):
                said = "requeued" if extra.get("requeue") else "rejected"
            for tag in meant:
                if tag in own:
                    given = own.pop(tag)
                    given.said, given.ok, given.by = said, row["type"] == "ok", row["index"]
    return found


def _messages(rows: list[dict[str, Any]]) -> dict[tuple[str, int], Message]:
    found: dict[tuple[str, int], Message] = {}
    for row in rows:
        if row["f"] != "enqueue":
            continue
        for queue in row["extra"].get("to", [row["key"]]):
            message = Message(
                queue, row["value"], row["type"], row["invoke_ns"],
                row["complete_ns"] if row["complete_ns"] is not None else FAR,
                row["extra"].get("ttl_ms"),
            )  # fmt: skip
            found.setdefault((queue, row["value"]), message)
    return found


def _origin(given: Given, messages: dict[tuple[str, int], Message]) -> Message | None:
    if given.value is None:
        return None
    if not given.deaths:
        return messages.get((given.key, given.value))
    for death in reversed(given.deaths):
        if (death["queue"], given.value) in messages:
            return messages[death["queue"], given.value]
    return None


def _fate(
    message: Message,
    rules: dict[str, QueueRules],
    rows: list[dict[str, Any]],
    messages: dict[tuple[str, int], Message],
    taking: set[str],
) -> str:
    said = [(given.said, given.ok, given.taken) for given in message.given]
    if ("acknowledged", True, False) in said:
        return "consumed"
    if any(taken for _, _, taken in said):
        return "drained"
    if message.dead:
        return "dead-lettered"
    if any(each in ("acknowledged", "automatic") for each, _, _ in said):
        return "consumed-unsure"
    queue = rules[message.queue]
    policies = _policies(message, queue, rows, messages)
    deleted = any(
        row["f"] in GONE and row["key"] == message.queue and row["type"] != "fail"
        and message.invoke_ns < (row["complete_ns"] if row["type"] == "ok" else FAR)
        for row in rows
    )  # fmt: skip
    if policies and (not queue.dead_letters or queue.dead_letters in taking):
        return policies[0]
    if deleted:
        return "deleted"
    return "dead letter" if policies else "lost"


def _policies(
    message: Message,
    queue: QueueRules,
    rows: list[dict[str, Any]],
    messages: dict[tuple[str, int], Message],
) -> list[str]:
    """Those that may have taken it, the first that counts first."""
    found = []
    if any(given.said == "rejected" for given in message.given):
        found.append("rejected")
    emptied = [row["invoke_ns"] for row in rows
               if row["error"] == "empty" and row["key"] == message.queue]  # fmt: skip
    lives = [ttl for ttl in (queue.ttl_ms or None, message.ttl_ms) if ttl is not None]
    if lives and message.invoke_ns + min(lives) * MS <= max(emptied):
        found.append("expired")
    behind = [
        other
        for other in messages.values()
        if other is not message and other.queue == message.queue and other.ack != "fail"
        and (other.complete_ns if other.ack == "ok" else FAR) > message.invoke_ns
    ]  # fmt: skip
    if queue.max_length and queue.overflow == "drop-head" and len(behind) >= queue.max_length:
        found.append("dropped")
    return found
