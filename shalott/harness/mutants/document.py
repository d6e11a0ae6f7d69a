"""docs/evidence/detection.md: how much a search finds of what was not planted, and how soon.

Written from the outcomes of `shalott mutants --measure`, which stand beside it
(``detection.json``); `shalott mutants --document` takes those of a store over, and writes both.
Nothing in it is written by hand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from shalott.core.errors import StoreError
from shalott.harness.mutants.by_hand import BY_HAND
from shalott.harness.mutants.catalogue import WRITTEN
from shalott.harness.mutants.outcomes import (
    CONTROL,
    Outcome,
    by_system,
    curve,
    score,
    sentence,
    survivors,
)

DOCUMENT, DATA = "evidence/detection.md", "evidence/detection.json"

_HEAD = """\
# Detection: what a search finds that was not planted

For readers who ask what a clean search is worth.

A mutant is the code of a broker with one thing changed: an acknowledgement before its sync, a vote
that is not stored, a comparison off by one. No search was prepared for it, and none is narrowed: on
each the plain `safe` search runs, over every workload of the system in turn, until it finds
something or its CPU time is over. A run in which the harness itself fails finds nothing, and a
finding counts only if the same plan is sound without the mutant.

This page is generated: `shalott mutants --measure` measures, `shalott mutants --document` writes.
"""


def load_document(directory: Path) -> dict[str, Outcome]:
    """Those of the last time; {} if there were none. Raises StoreError."""
    path = directory / DATA
    try:
        outcomes = msgspec.json.decode(path.read_bytes(), type=list[Outcome])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.MsgspecError) as error:
        raise StoreError(f"cannot read {path}: {error}") from error
    return {each.name: each for each in outcomes}


def that_count(outcomes: Mapping[str, Outcome]) -> dict[str, Outcome]:
    """Without those of mutants that are no more, or were found to change nothing."""
    count = {each.name: None for each in WRITTEN if not each.equivalent}
    return {n: o for n, o in outcomes.items() if o.operator != BY_HAND or n in count}


def write_document(directory: Path, outcomes: Mapping[str, Outcome]) -> None:
    """Both files, an outcome a line. Raises StoreError."""
    ordered = [outcomes[name] for name in sorted(outcomes)]
    try:
        (directory / DATA).parent.mkdir(parents=True, exist_ok=True)
        rows = b",\n".join(msgspec.json.encode(each) for each in ordered)
        (directory / DATA).write_bytes(b"[\n" + rows + b"\n]\n")
        (directory / DOCUMENT).write_text(render(outcomes), encoding="utf-8")
    except OSError as error:
        raise StoreError(f"cannot write into {directory}: {error.strerror}") from error


def render(outcomes: Mapping[str, Outcome]) -> str:
    measured = [each for each in outcomes.values() if each.operator != CONTROL]
    lines = [
        _HEAD,
        *_extent(measured),
        "",
        "## Score",
        "",
        *_score_table(outcomes),
        "",
        "## Score against CPU time",
        "",
        *_curve_table(measured),
        "",
        "## Who finds them",
        "",
        *_by_whom(measured),
        "",
        "## Controls",
        "",
        *_controls(outcomes),
        "",
        "## Survivors",
        "",
        "Each is a fault, a workload or a checker that is missing.",
        "",
        *_survivors(measured),
        "",
        "## Equivalent ones",
        "",
        "They change the code and nothing that anybody can notice, and count for nothing.",
        "",
        *(
            f"- `{each.name}`: {each.breaks}; but {each.equivalent}."
            for each in WRITTEN
            if each.equivalent
        ),
    ]
    return "\n".join(lines) + "\n"


def _extent(measured: Sequence[Outcome]) -> Iterator[str]:
    """How much of what there is was measured."""
    by_hand = {each.name for each in WRITTEN if not each.equivalent}
    of_these = [each for each in measured if each.name in by_hand]
    ran = sum(each.ran for each in measured)
    cpu_s = sum(each.cpu_s for each in measured)
    part = " This is a part: the others were not measured." if len(of_these) < len(by_hand) else ""
    yield (
        f"Measured: {len(of_these)} of {len(by_hand)} mutants that were written by hand and are not"
        f" equivalent, and {len(measured) - len(of_these)} others, in {ran:,} runs and"
        f" {cpu_s / 60:,.0f} CPU minutes.{part}"
    )
    if measured:
        seeds = ", ".join(dict.fromkeys(each.seeds for each in measured))
        budgets = ", ".join(f"{each:g} s" for each in sorted({one.budget_s for one in measured}))
        codes = len({each.code for each in measured})
        yield (
            f"Seeds {seeds}, each mutant from the first one on; CPU time for each: {budgets}."
            + (f" They were measured on {codes} states of the code." if codes > 1 else "")
        )


def _score_table(outcomes: Mapping[str, Outcome]) -> Iterator[str]:
    yield "| system | found of | within 30 s | median s | seeds (median) | harness failed |"
    yield "| --- | --- | --- | --- | --- | --- |"
    rows = by_system(outcomes)
    everything = [one for each in rows.values() for one in each]
    for system, own in [*rows.items(), ("all", everything)]:
        counted = [each for each in own if each.counts]
        found = [each for each in counted if each.is_found]
        most_s = min((each.budget_s for each in counted if not each.is_found), default=0.0)
        most_s = most_s or max((each.budget_s for each in counted), default=0.0)
        unfit = sum(each.operator != CONTROL and each.failed > 0 for each in own)
        cells = [
            system,
            str(score(own, most_s)),
            str(score(own, 30)),
            _median([each.cpu_s for each in found]),
            _median([each.ran for each in found]),
            str(unfit),
        ]
        yield f"| {' | '.join(cells)} |"


def _median(values: Sequence[float]) -> str:
    ordered = sorted(values)
    return f"{ordered[len(ordered) // 2]:.0f}" if ordered else "-"


def _curve_table(measured: Sequence[Outcome]) -> Iterator[str]:
    yield "Of those that were searched for so long, or found before; with Wilson's interval (95 %)."
    yield ""
    yield "| CPU s | found of |"
    yield "| --- | --- |"
    for each in curve(measured):
        yield f"| {each.cpu_s:g} | {each} |"


def _by_whom(measured: Sequence[Outcome]) -> Iterator[str]:
    found = [each for each in measured if each.counts and each.is_found]
    for heading, of in (
        ("checker", lambda one: one.checkers),
        ("class", lambda one: one.classes),
        ("workload", lambda one: (one.workload,)),
        ("fault in the run", lambda one: one.faults or ("none",)),
    ):
        counts = Counter(name for each in found for name in of(each))
        told = ", ".join(f"{name} {count}" for name, count in counts.most_common())
        yield f"- By {heading}: {told or 'nothing was found'}."
    yield ""
    yield "| mutant | what it breaks | found by | seed | runs | CPU s |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for each in sorted(found, key=lambda one: one.name):
        whom = f"{', '.join(each.checkers)} ({', '.join(each.classes)}), {each.workload}"
        cells = [
            f"`{each.name}`",
            each.breaks.replace("|", "\\|"),
            whom,
            str(each.seed),
            str(each.ran),
            f"{each.cpu_s:.0f}",
        ]
        yield f"| {' | '.join(cells)} |"


def _controls(outcomes: Mapping[str, Outcome]) -> Iterator[str]:
    controls = [each for each in outcomes.values() if each.operator == CONTROL]
    if not controls:
        yield "None was measured."
    for each in sorted(controls, key=lambda one: one.name):
        what = "nothing"
        if each.void:
            seeds = ", ".join(map(str, each.void))
            what = f"{', '.join(each.classes)} in {len(each.void)} (seeds {seeds})"
        yield (
            f"- {each.system}: the code as it is, {each.ran} runs, {each.cpu_s:.0f} CPU s:"
            f" {what} was found; the harness failed in {each.failed}."
        )


def _survivors(measured: Sequence[Outcome]) -> Iterator[str]:
    left = sorted(survivors(measured), key=lambda one: one.name)
    yield from (f"- `{each.name}`: {sentence(each)}" for each in left)
    if not left:
        yield "None of those that were measured."
    void = [each for each in measured if not each.counts and not each.equivalent]
    for each in sorted(void, key=lambda one: one.name):
        yield f"- `{each.name}` proves nothing: the harness failed in all runs ({each.failure})."
