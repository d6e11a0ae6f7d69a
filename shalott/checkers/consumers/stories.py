"""consumer-fates: the verdict on what became of every message, and what is told of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from shalott.checkers.base import OPERATIONS_MAX, Anomaly
from shalott.checkers.consumers.case.case import Case
from shalott.checkers.consumers.case.finding import Finding, anomaly_of
from shalott.checkers.consumers.messages.fates import (
    DOUBTFUL,
    FATES,
    LOST,
    MISSING,
    UNSAFE,
    Fates,
    message_fates,
)
from shalott.checkers.consumers.messages.letters import undue_letters
from shalott.checkers.consumers.promises.leaving import served_after_leaving
from shalott.checkers.consumers.promises.redeliveries import (
    CLASSES,
    causes,
    classes,
    dead_letters_again,
    judge_pairs,
)
from shalott.checkers.consumers.rows.rows import FAIL, INFO, OK, Published
from shalott.checkers.history.columns import Bools, Ints, Operations
from shalott.checkers.history.words import Words
from shalott.checkers.queues.guarantees import ClientGuarantees
from shalott.checkers.queues.loss_story import loss_story
from shalott.checkers.queues.outcomes import LOST as LOST_OUTCOME
from shalott.checkers.queues.outcomes import OK as OK_OUTCOME
from shalott.checkers.queues.outcomes import Deliveries, MessageOutcomes, Messages
from shalott.core.history import History

QUEUES_MAX = 1000
NOT_PROMISED = ("dead-letter-unsafe", "dead-letter-missing", "lost")  # if a plan promises nothing


def consumer_fates(case: Case, history: History) -> Finding:
    """Nothing that was acknowledged to its publisher is lost to its consumers.

    Source: RabbitMQ, Reliability Guide, Acknowledgements and Confirms; Consumer Acknowledgements
    and Publisher Confirms, When Will Published Messages Be Confirmed by the Broker. What policies
    take: checkers/consumers/messages/fates.py.
    """
    fates = case.once(message_fates)
    published, deliveries = case.rows.published, case.rows.deliveries
    lost = fates.fate == LOST
    loss, lost_anomalies = _loss(case, fates, history) if lost.any() else ({}, [])
    phantom = (published.ack == FAIL) & fates.came_out
    early = (deliveries.message >= 0) & (
        deliveries.at_ns < np.append(published.invoke_ns, 0)[deliveries.message]
    )
    unknown = (deliveries.message < 0) & ~deliveries.damaged
    undue, twice = undue_letters(case), dead_letters_again(case)
    anomalies = [
        *lost_anomalies,
        *_of_messages(case, "dead-letter-missing", fates.fate == MISSING,
                      "taken by a policy in quiet times and not found among the dead letters"),
        *_of_messages(case, "dead-letter-unsafe", fates.fate == UNSAFE,
                      "taken by a policy, or lost, near a fault, and not found among the dead"
                      " letters, which are published without confirms"),
        *_of_messages(case, "phantom", phantom, "delivered although the publish had failed"),
        *anomaly_of(case, "too-early", np.flatnonzero(early), [], "delivered before the publish"),
        *anomaly_of(case, "unexpected", np.flatnonzero(unknown), [],
                    "delivered although nobody had published such to this queue"),
        *anomaly_of(case, "corrupted", np.flatnonzero(deliveries.damaged), [],
                    "damaged: the body failed its CRC"),
        *anomaly_of(case, "dead-letter-twice", twice.again, [deliveries.index[twice.before]],
                    "dead-lettered twice by one master"),
        *anomaly_of(case, "dead-letter-undue", undue, [],
                    "among the dead letters for a reason that was not there"),
    ]  # fmt: skip
    doubtful = int((fates.fate == DOUBTFUL).sum())
    doubts = [f"{queue} was not drained: {why}." for queue, why in fates.undrained.items()]
    if doubtful:
        doubts.append(f"{doubtful} acknowledged messages may be lost or may still be there.")
    if published.repeated:
        doubts.append(f"{published.repeated} publishes repeat another's value.")
    # A queue that was not drained makes no doubt where nothing of it is missing.
    serious = doubtful > 0 or published.repeated > 0 or not case.complete
    kinds = {each.kind: each for each in anomalies if each.kind != "lost"}
    return Finding(
        judged=int((published.ack == OK).sum()),
        anomalies=anomalies,
        excused=("dead-letter-unsafe",) if case.rules.keeps_acknowledged else NOT_PROMISED,
        counts=_counts(case, fates, kinds),
        doubts=doubts if serious else (),
        notes=() if serious else doubts,
        detail={**_detail(case, fates), "undrained": fates.undrained, "loss": loss},
    )


def _of_messages(case: Case, kind: str, mask: Bools, what: str) -> list[Anomaly]:
    """One anomaly for all messages of a kind, with their publishes and first deliveries."""
    members = np.flatnonzero(mask)
    if not len(members):
        return []
    published = case.rows.published
    first = case.first[members[: OPERATIONS_MAX // 2]]
    indexes = np.append(case.rows.deliveries.index, -1)[first]
    together = np.stack((published.index[members[: OPERATIONS_MAX // 2]], indexes), axis=1)
    messages = "message was" if len(members) == 1 else "messages were"
    at_s = published.invoke_ns[members[0]] / 1e9
    queue = case.rows.queues[published.queue[members[0]]]
    return [
        Anomaly(
            kind=kind,
            summary=f"{len(members)} {messages} {what}, first of {queue}, published at"
            f" {at_s:.1f} s",
            operations=tuple(int(index) for index in together.ravel() if index >= 0),
            detail={
                "count": len(members),
                "values": [int(value) for value in published.value[members[:OPERATIONS_MAX]]],
            },
        )
    ]


def _counts(case: Case, fates: Fates, kinds: dict[str, Anomaly]) -> dict[str, int | float]:
    published, deliveries = case.rows.published, case.rows.deliveries
    by_ack = np.bincount(published.ack, minlength=3)
    own = fates.fate[fates.fate >= 0]
    by_fate = np.bincount(own, minlength=len(FATES))
    unsure = published.ack == INFO
    again = fates.dead_letters > 1
    found: dict[str, int | float] = {
        "attempt-count": len(published.index),
        "acknowledged-count": int(by_ack[OK]),
        "failed-count": int(by_ack[FAIL]),
        "indeterminate-count": int(by_ack[INFO]),
        "delivery-count": int((~deliveries.taken).sum()),
        "taken-count": int(deliveries.taken.sum()),
        **{f"{name}-count": int(by_fate[code]) for code, name in enumerate(FATES)},
        "recovered-count": int((unsure & fates.came_out).sum()),
        "not-enqueued-count": int(((published.ack != OK) & ~fates.came_out).sum()),
        "dead-lettered-twice-count": int(again.sum()),
    }
    for kind in ("phantom", "too-early", "unexpected", "corrupted", "dead-letter-undue"):
        found[f"{kind}-count"] = int(kinds[kind].detail["count"]) if kind in kinds else 0
    for name, count in zip(CLASSES, _class_counts(case), strict=True):
        found[f"{name}-delivery-count"] = count
    return found


def _class_counts(case: Case) -> list[int]:
    deliveries = case.rows.deliveries
    found = case.once(_classes)
    own = found[~deliveries.taken]
    return [int(count) for count in np.bincount(own, minlength=len(CLASSES))]


def _classes(case: Case) -> Any:
    return classes(case, served_after_leaving(case))


def _detail(case: Case, fates: Fates) -> dict[str, Any]:
    queues = case.rows.queues
    table = np.zeros((len(queues), len(FATES)), dtype=np.int64)
    own = np.flatnonzero(fates.fate >= 0)
    np.add.at(table, (case.rows.published.queue[own], fates.fate[own]), 1)
    by_class = np.zeros((len(queues), len(CLASSES)), dtype=np.int64)
    given = np.flatnonzero(~case.rows.deliveries.taken & (case.rows.deliveries.queue >= 0))
    np.add.at(by_class, (case.rows.deliveries.queue[given], case.once(_classes)[given]), 1)
    pairs = case.once(judge_pairs).pairs
    return {
        "fates": _named(FATES, table.sum(axis=0)),
        "fates-by-queue": _by_queue(queues, FATES, table),
        "deliveries": _named(CLASSES, _class_counts(case)),
        "deliveries-by-queue": _by_queue(queues, CLASSES, by_class),
        "redeliveries-by-cause": causes(case, pairs),
    }


def _named(names: Sequence[str], counts: Any) -> dict[str, int]:
    return {name: int(count) for name, count in zip(names, counts, strict=True)}


def _by_queue(queues: Sequence[str], names: Sequence[str], table: Any) -> dict[str, Any]:
    used = [code for code in range(len(queues)) if table[code].any()][:QUEUES_MAX]
    return {queues[code]: _named(names, table[code]) for code in used}


def _loss(case: Case, fates: Fates, history: History) -> tuple[dict[str, Any], list[Anomaly]]:
    """The anatomy of loss, as total-queue tells it: each message as if it had a publish alone."""
    published = case.rows.published
    size = len(published.index)
    ops = _as_operations(case, published)
    order = np.arange(size)
    outcome = np.where(fates.fate == LOST, LOST_OUTCOME, OK_OUTCOME).astype(np.int32)
    nothing = np.zeros(0, dtype=np.int64)
    messages = Messages(
        value=published.value,
        row=order,
        ack=np.where(fates.fate == DOUBTFUL, INFO, published.ack).astype(np.int32),
        delivered=fates.came_out.astype(np.int64),
        outcome=outcome,
        too_early=np.zeros(size, dtype=np.bool_),
    )
    outcomes = MessageOutcomes(messages, Deliveries(nothing, nothing), nothing, 0, 0)
    detail, anomalies = loss_story(ops, outcomes, history, case.around, ClientGuarantees())
    return detail, list(_with_deliveries(case, anomalies))


def _as_operations(case: Case, published: Published) -> Operations:
    size = len(published.index)
    nothing = Words(np.zeros(size, dtype=np.int32), ("",))
    kinds = np.array(published.ack, dtype=np.int32)
    return Operations(
        index=published.index,
        process=published.process,
        node=published.node,
        f=Words(np.zeros(size, dtype=np.int32), ("enqueue",)),
        key=Words(published.queue.astype(np.int32), case.rows.queues),
        value=published.value,
        has_value=np.ones(size, dtype=np.bool_),
        type=Words(kinds, ("ok", "fail", "info")),
        invoke_ns=published.invoke_ns,
        complete_ns=published.complete_ns,
        redelivered=np.zeros(size, dtype=np.bool_),
        error=nothing,
    )


def _with_deliveries(case: Case, anomalies: Sequence[Anomaly]) -> Iterator[Anomaly]:
    """Says of what was lost whether a consumer had been given it."""
    published = case.rows.published
    given = case.first[np.argsort(published.index, kind="stable")] >= 0
    indexes: Ints = np.sort(published.index)
    for anomaly in anomalies:
        at = np.searchsorted(indexes, np.array(anomaly.operations, dtype=np.int64))
        count = int(given[np.minimum(at, len(given) - 1)].sum()) if len(given) else 0
        yield Anomaly(
            kind=anomaly.kind,
            summary=anomaly.summary,
            operations=anomaly.operations,
            detail={**anomaly.detail, "delivered-before-of-these": count},
        )
