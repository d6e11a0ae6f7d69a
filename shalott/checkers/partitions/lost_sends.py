"""Of what a log lost: whether its system's manual documents such a loss.

After the heal each node was read to its end (final_reads.py). Acknowledged messages that none of
them shows are lost; those of one key that were acknowledged one after the other are a run, and each
run is held against the ways of loss that the system's record names. The judge of partitions says
what is an error; this one only says of it what is documented.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import msgspec

from shalott.checkers.checker import Checker, Result
from shalott.checkers.history.documented_losses import (
    LossScene,
    Stretch,
    documented_loss,
    in_detail,
)
from shalott.checkers.history.faults import read_surroundings
from shalott.checkers.history.loss import LossDetail, LossStory, window_label
from shalott.checkers.partitions.final_reads import Reads, final_reads
from shalott.core.documented_loss import DocumentedLoss
from shalott.core.history import History

STORIES_MAX = 1000
LOSSES = ("lost-write", "unseen")
UNEXPLAINED = "no documented way of loss explains it"


@dataclass(frozen=True, slots=True)
class LostSends:
    """The judge's result, and of its losses what is documented of them."""

    judge: Checker
    documented: tuple[DocumentedLoss, ...] = ()

    @property
    def name(self) -> str:
        return self.judge.name

    def check(self, history: History) -> Result:
        result = self.judge.check(history)
        if result.valid is not False or not any(each.kind in LOSSES for each in result.anomalies):
            return result
        loss = lost_sends(history, self.documented)
        if not loss:
            return result
        unexplained = loss["by-cause"].get("unexplained", 0)
        return msgspec.structs.replace(
            result,
            counts={**result.counts, "lost-unexplained-count": unexplained},
            detail={**result.detail, "loss": loss},
        )


def lost_sends(history: History, documented: Sequence[DocumentedLoss]) -> LossDetail:
    """{}: nothing of what was acknowledged is missing, or it is not known."""
    reads = final_reads(history)
    if not reads.nodes or reads.cut:
        return {}
    scene = LossScene.read(history, read_surroundings(history))
    stories = [_story(run, documented, scene) for run in _runs(history, reads)]
    stories.sort(key=lambda story: (story["cause"] != "unexplained", -story["length"]))
    by_cause: dict[str, int] = {}
    for story in stories:
        by_cause[story["cause"]] = by_cause.get(story["cause"], 0) + story["length"]
    if not stories:
        return {}
    seen = in_detail(documented, list(by_cause))
    told = {"by-cause": by_cause, "stories": stories[:STORIES_MAX]}
    return told | ({"documented": seen} if seen else {})


@dataclass(frozen=True, slots=True)
class _Send:
    key: int
    value: int
    operation: int
    end_ns: int
    is_lost: bool


def _runs(history: History, reads: Reads) -> Iterator[list[_Send]]:
    ended = history.ops["complete_ns"].to_numpy(zero_copy_only=False)
    for key, acked in sorted(reads.acked.items()):
        kept = {
            value
            for read in reads.by_key.get(key, {}).values()
            for value in read.by_offset.values()
        }
        sends = [
            _Send(key, value, operation, int(ended[operation]), value not in kept)
            for value, operation in acked.items()
        ]
        sends.sort(key=lambda send: (send.end_ns, send.operation))
        for is_lost, run in groupby(sends, key=lambda send: send.is_lost):
            if is_lost:
                yield list(run)


def _story(
    run: Sequence[_Send], documented: Sequence[DocumentedLoss], scene: LossScene
) -> LossStory:
    begin_ns, end_ns = run[0].end_ns, run[-1].end_ns
    found = documented_loss(Stretch(begin_ns, end_ns), documented, scene)
    return {
        "queue": f"key {run[0].key}",
        "node": "",
        "acknowledged-by": [],
        "length": len(run),
        "first": run[0].value,
        "last": run[-1].value,
        "begin_ns": begin_ns,
        "end_ns": end_ns,
        "window": window_label(scene.around.injected, end_ns),
        "cause": found.loss.name if found else "unexplained",
        "why": f"{found.loss.text}: {found.text}" if found else UNEXPLAINED,
        "steps": list(found.steps) if found else [],
        "operations": [],
    }
