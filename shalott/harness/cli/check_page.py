"""The page of `shalott check --report`: what is invalid in each history, drawn.

What is not linearizable is a timeline; what a judge found is told as its argument, with the picture
that the judge drew of it, if it did.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING

from shalott.checkers.linearizability.timeline import page_of, timeline_body, timeline_page
from shalott.harness.cli.check_lines import Checked, Judged

if TYPE_CHECKING:
    from shalott.checkers.checker import Anomaly


def check_page(drawn: Sequence[Checked | Judged]) -> str:
    timelines = [each for each in drawn if isinstance(each, Checked)]
    if len(timelines) == len(drawn):
        return timeline_page(
            [
                (each.explanation, each.object_history)
                for each in timelines
                if each.explanation is not None
            ]
        )
    several = len(drawn) > 1
    bodies = "".join(part for each in drawn for part in _body(each, several=several))
    files = ", ".join(dict.fromkeys(each.file for each in drawn))
    return page_of(files, bodies, brand="check", heading="Invalid")


def _body(found: Checked | Judged, *, several: bool) -> Iterator[str]:
    if several:
        yield f"<h2>{escape(found.file)}</h2>"
    if isinstance(found, Checked):
        if found.explanation is not None:
            yield timeline_body(found.explanation, found.object_history)
        return
    yield f'<p class="soft">judged as <b>{escape(found.specification)}</b></p>'
    yield "".join(f'<p class="small soft">{escape(note)}</p>' for note in found.notes)
    for anomaly in found.result.anomalies:
        yield _anomaly(anomaly)


def _anomaly(anomaly: Anomaly) -> str:
    argument = "".join(f"<li>{escape(each)}</li>" for each in anomaly.detail.get("argument", ()))
    places = ", ".join(map(str, anomaly.operations))
    return (
        f"<h3>{escape(anomaly.kind)}</h3><p>{escape(anomaly.summary)}"
        + (f' <span class="soft">({places})</span>' if places else "")
        + "</p>"
        + (f"<ul>{argument}</ul>" if argument else "")
        + str(anomaly.detail.get("drawing", ""))
    )
