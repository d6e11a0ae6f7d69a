"""junit.xml: one test case a checker, for whatever shows test results in a CI.

An invalid result is a <failure>, an unknown one an <error>: nobody knows whether the promise was
kept, and a CI must not show that as green, which a <skipped> would. A run that did not end, that
was refused, or whose harness failed is an <error> too, never an absence. A valid result that has
something to say says it in <system-out>.

The class of a case holds system, profile and cluster; its name the checker, workload, faults, seed
and iteration: no two cases of a matrix of runs have both in common. ``time`` is the run's real
duration, of each of its cases, as each judges the whole run. The dialect is the one that Jenkins
(junit-10.xsd), GitLab and pytest share.
"""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree

from shalott.checkers.checker import Result
from shalott.core.plan import Plan
from shalott.harness.report.junit_document import (
    NOT_ENDED,
    add_case,
    add_error,
    add_property,
    make_suite,
    render_suites,
    spoken,
)
from shalott.harness.report.meta import ReportMeta
from shalott.harness.report.words import findings, valid_word

_LINES_MAX = 50
WHOLE_RUN = "run"  # the case that every run has, whatever became of it


def render_junit(plan: Plan, results: Sequence[Result], meta: ReportMeta) -> bytes:
    """The document of a run that was judged. The harness's own failures are cases of their own."""
    suite = _suite(plan, meta)
    for result in results:
        _judge(_case(suite, plan, meta, result.checker), result)
    for number, failure in enumerate(meta.failures, 1):
        name = "harness" if number == 1 else f"harness {number}"
        add_error(_case(suite, plan, meta, name), "harness", f"The harness failed: {failure}")
    return render_suites([suite])


def render_unended(plan: Plan, meta: ReportMeta, sentence: str = NOT_ENDED) -> bytes:
    """The document of a run that has no verdict, or none yet: one case, an error."""
    suite = _suite(plan, meta)
    add_error(_case(suite, plan, meta, WHOLE_RUN), "unended", sentence)
    return render_suites([suite])


def _suite(plan: Plan, meta: ReportMeta) -> ElementTree.Element:
    suite = make_suite(plan.name, meta.started_wall_ns, meta.elapsed_ns, meta.command)
    add_property(suite, "seed", str(plan.seed))
    return suite


def _case(
    suite: ElementTree.Element, plan: Plan, meta: ReportMeta, checker: str
) -> ElementTree.Element:
    kinds = "+".join(sorted({action.kind for action in plan.faults})) or "none"
    run = f"{plan.workload.name}, nemesis {kinds}, seed {plan.seed}, iteration {meta.iteration}"
    class_name = f"shalott.{plan.system.name}.{plan.system.profile}.{plan.cluster.backend}"
    return add_case(suite, f"{checker} ({run})", class_name, meta.elapsed_ns)


def _judge(case: ElementTree.Element, result: Result) -> None:
    word = valid_word(result.valid)
    sentences = [sentence for _, _, sentence in findings([result])]
    if word == "valid":
        if sentences:
            ElementTree.SubElement(case, "system-out").text = spoken("\n".join(sentences))
        return
    kind = "failure" if word == "invalid" else "error"
    reason = sentences[0] if sentences else f"{result.checker} is {word}."
    outcome = ElementTree.SubElement(case, kind, message=spoken(reason), type=word)
    outcome.text = spoken("\n".join(_lines(result, sentences)))


def _lines(result: Result, sentences: Sequence[str]) -> list[str]:
    """All that a reader of the CI's page needs before opening the report."""
    anomalies = [
        f"{anomaly.kind}: {anomaly.summary} [{' '.join(map(str, anomaly.operations))}]"
        for anomaly in result.anomalies
    ]
    counts = [f"{name} = {value:g}" for name, value in result.counts.items()]
    more = len(anomalies) - _LINES_MAX
    shown = [*anomalies[:_LINES_MAX], *([f"and {more} more anomalies"] if more > 0 else [])]
    return [*dict.fromkeys([*sentences, *result.notes]), *shown, *counts]
