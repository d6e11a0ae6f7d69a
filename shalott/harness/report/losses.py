"""What was lost, as a report lays it out: lanes on the time axis, tables, and stories step by step.

All of it is read from ``loss`` in the detail of the checker that counted the messages: of queues
``total-queue`` and ``consumer-fates``, of replicated logs ``log``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

from shalott.checkers.checker import Result
from shalott.harness.report.draw import Bar
from shalott.harness.report.loss_windows import LOSS_WINDOWS

STORIES_MAX = 60  # runs of loss listed
TOLD_MAX = 6  # of these step by step
LANES_MAX = 8
Shares = Mapping[str, Mapping[str, int]]  # name -> acknowledged, lost; or the places in a queue


class LossStep(TypedDict):
    at_ns: int | None
    says: str
    event: int


LossStory = TypedDict(
    "LossStory",
    {
        "queue": str,
        "node": str,
        "acknowledged-by": list[str],
        "length": int,
        "begin_ns": int,
        "end_ns": int,
        "window": str,
        "cause": str,
        "steps": list[LossStep],
    },
)


class LossWindow(TypedDict):
    window: str
    acknowledged: int
    lost: int


LossDetail = TypedDict(
    "LossDetail",
    {
        "by-cause": Mapping[str, int],
        "stories": Sequence[LossStory],
        "by-acknowledger": Shares,
        "by-node": Shares,
        "by-fault-window": Sequence[LossWindow],
        "by-queue": Shares,
        "documented": Mapping[str, Mapping[str, str]],
    },
    total=False,
)


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    is_number: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    cells: list[str]
    share: float = 0  # of the bar, in percent
    span: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class LossTable:
    title: str
    note: str
    columns: list[Column]
    rows: list[Row]
    has_bar: bool


@dataclass(frozen=True, slots=True)
class LossLane:
    """``name``: the node that acknowledged, or the queue; "" if all losses are in one lane."""

    name: str
    lost: int
    bars: list[Bar]


@dataclass(frozen=True, slots=True)
class LossAccountStep:
    """``at``: when, in words, or ""."""

    at: str
    says: str


@dataclass(frozen=True, slots=True)
class LossAccount:
    title: str
    cause: str
    span: tuple[float, float]
    steps: list[LossAccountStep]


def loss_of(results: Sequence[Result]) -> LossDetail:
    """The anatomy of loss; empty if nothing was lost."""
    nothing: LossDetail = {}
    return next((r.detail["loss"] for r in results if r.detail.get("loss")), nothing)


def cause_of(cause: str, documented: Mapping[str, Mapping[str, str]]) -> tuple[str, str]:
    """What a way of loss is, and what closes it. ``documented``: those that the system's own record
    names, by what the results tell of them."""
    if cause in documented:
        own = documented[cause]
        return f"{own['text']} ({own['manual']})", own["closed-by"]
    return LOSS_WINDOWS.get(cause, ("no event, observation or fault explains it", ""))


def loss_lanes(results: Sequence[Result]) -> list[LossLane]:
    """The runs of loss by who acknowledged them, if more than one node did, or else by queue."""
    stories = loss_of(results).get("stories", ())
    nodes = {_acknowledged_by(story) for story in stories}
    queues = {story["queue"] for story in stories}
    by_node = len(nodes) > 1 or (len(queues) == 1 and nodes != {""})
    lanes: dict[str, list[LossStory]] = {}
    for story in stories:
        name = _acknowledged_by(story) if by_node else story["queue"]
        lanes.setdefault(name or "not known", []).append(story)
    ranked = sorted(lanes.items(), key=lambda item: -sum(one["length"] for one in item[1]))
    shown, rest = ranked[:LANES_MAX], ranked[LANES_MAX:]
    if rest:
        shown.append((f"{len(rest)} more", [story for _, own in rest for story in own]))
    return [
        LossLane(name, sum(one["length"] for one in own), [_bar(one) for one in own])
        for name, own in shown
    ]


def _acknowledged_by(story: LossStory) -> str:
    return " and ".join(story.get("acknowledged-by") or ())


def _bar(story: LossStory) -> Bar:
    by = _acknowledged_by(story)
    count = "1 message" if story["length"] == 1 else f"{story['length']:,} messages in a row"
    return Bar(
        round(story["begin_ns"] / 1e6, 1),
        round(story["end_ns"] / 1e6, 1),
        "loss",
        "",
        f"lost: {count} of {story['queue']}{f', acknowledged by {by}' if by else ''}",
    )


def loss_accounts(results: Sequence[Result]) -> list[LossAccount]:
    """The first runs of loss step by step, where steps were seen. Runs that went the same way are
    told once."""
    found: dict[tuple[str, ...], LossAccount] = {}
    documented = loss_of(results).get("documented", {})
    for story in loss_of(results).get("stories", ()):
        steps = [
            LossAccountStep(_when(step), str(step["says"])) for step in story.get("steps") or ()
        ]
        if not steps:
            continue
        by = _acknowledged_by(story) or story["node"]
        count = "1 message" if story["length"] == 1 else f"{story['length']:,} messages"
        title = f"{count} of {story['queue']}{f', acknowledged by {by}' if by else ''}"
        span = (story["begin_ns"] / 1e6, story["end_ns"] / 1e6)
        key = (
            story["cause"],
            by,
            *(step.says for step in steps if " acknowledged " not in step.says),
        )
        found.setdefault(
            key, LossAccount(title, cause_of(story["cause"], documented)[0], span, steps)
        )
    return list(found.values())[:TOLD_MAX]


def _when(step: LossStep) -> str:
    at_ns = step.get("at_ns")
    return f"{at_ns / 1e9:.2f} s" if isinstance(at_ns, int) else ""


def loss_tables(results: Sequence[Result]) -> list[LossTable]:
    loss = loss_of(results)
    if not loss:
        return []
    tables = [
        _cause_table(loss.get("by-cause", {}), loss.get("documented", {})),
        _story_table(loss.get("stories", ())),
        _share_table("By node", "node that acknowledged", _known(loss.get("by-acknowledger", {}))),
        _share_table("By connection", "node that the sender talked to", loss.get("by-node", {})),
        _share_table(
            "By fault window",
            "when it was acknowledged",
            {
                row["window"]: {"acknowledged": row["acknowledged"], "lost": row["lost"]}
                for row in loss.get("by-fault-window", ())
            },
        ),
        _position_table("By queue", "queue", loss.get("by-queue", {})),
    ]
    return [table for table in tables if table.rows]


def _cause_table(
    by_cause: Mapping[str, int], documented: Mapping[str, Mapping[str, str]]
) -> LossTable:
    total = sum(by_cause.values()) or 1
    rows = [
        Row(
            [cause, title, f"{n:,}", closed_by],
            100 * n / total,
        )
        for cause, n in sorted(by_cause.items(), key=lambda item: -item[1])
        for title, closed_by in [cause_of(cause, documented)]
    ]
    columns = [Column("window"), Column("cause"), Column("lost", True), Column("closed by")]
    return LossTable("By cause", "", columns, rows, has_bar=True)


def _story_table(stories: Sequence[LossStory]) -> LossTable:
    shown = list(stories[:STORIES_MAX])
    longest = max((story["length"] for story in shown), default=1)
    rows = [
        Row(
            [
                f"{story['begin_ns'] / 1e9:.2f}–{story['end_ns'] / 1e9:.2f} s",
                story["queue"],
                _acknowledged_by(story) or "not known",
                f"{story['length']:,}",
                story["window"],
                story["cause"],
            ],
            100 * story["length"] / longest,
            (story["begin_ns"] / 1e6, story["end_ns"] / 1e6),
        )
        for story in shown
    ]
    columns = [
        *(Column("acknowledged"), Column("queue"), Column("acknowledged by")),
        *(Column("lost", True), Column("when"), Column("cause")),
    ]
    runs = "1 run" if len(stories) == 1 else f"{len(stories):,} runs, the longest of {longest:,}"
    note = f"Messages acknowledged one after the other, all of them lost: {runs}."
    if len(stories) > len(shown):
        note += f" The {len(shown)} longest are listed."
    return LossTable("Runs of loss", note, columns, rows, has_bar=True)


def _known(by_node: Shares) -> dict[str, Mapping[str, int]]:
    return {name or "not known": counts for name, counts in by_node.items()}


def _share_table(title: str, name: str, counts: Shares) -> LossTable:
    rows = []
    for label, row in counts.items():
        acked, lost = row["acknowledged"], row["lost"]
        percent = 100 * lost / acked if acked else 0.0
        share = f"{percent:.1f} %" if lost else "–"
        rows.append(Row([label, f"{acked:,}", f"{lost:,}", share], percent))
    columns = [
        Column(name),
        Column("acknowledged", True),
        Column("lost", True),
        Column("share", True),
    ]
    return LossTable(title, "", columns, rows, has_bar=True)


def _position_table(title: str, name: str, counts: Shares) -> LossTable:
    places = ("prefix", "middle", "suffix", "whole")
    rows = [Row([label, *(f"{row.get(p, 0):,}" for p in places)]) for label, row in counts.items()]
    note = "Where in the order of acknowledgement; whole: nothing of the queue survived."
    columns = [Column(name), *(Column(place, True) for place in places)]
    return LossTable(title, note, columns, rows, has_bar=False)
