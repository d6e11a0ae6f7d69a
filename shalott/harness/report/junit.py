"""junit.xml: one test case a checker, for CI servers. Its shape is also that of other JUnit files.

An invalid result is a <failure>, an unknown one an <error>: a CI must not show a promise that could
not be judged as green, which a <skipped> would. A run that did not end, that was refused, or whose
harness failed is an <error> too, never an absence. A valid result that has something to say says it
in <system-out>.

The class of a case holds system, profile and cluster; its name the checker, workload, faults, seed
and iteration: no two cases of a matrix of runs have both in common. ``time`` is the run's real
duration, of each of its cases, as each judges the whole run. The dialect is the one that Jenkins
(junit-10.xsd), GitLab and pytest share.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from xml.etree import ElementTree

from shalott.checkers.checker import Result
from shalott.core.plan import Plan
from shalott.harness.report.meta import ReportMeta
from shalott.harness.report.verdict_words import findings, valid_word

# XML 1.0 has no way to say these, escaped or not; a broker's error text may hold any of them.
_UNSPEAKABLE = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
NOT_ENDED = "The run did not end: its harness was killed, or it still runs."
_LINES_MAX = 50
WHOLE_RUN = "run"  # the case that every run has, however it ended


def render_refusal(command: str, started_wall_ns: int, sentence: str = NOT_ENDED) -> bytes:
    """The document of a command line that has not become a run."""
    suite = make_suite("shalott", started_wall_ns, 0, command)
    add_error(add_case(suite, command, "shalott.command", 0), "refused", sentence)
    return render_suites([suite])


def combine(documents: Iterable[bytes]) -> bytes:
    return render_suites([suite for text in documents for suite in ElementTree.fromstring(text)])


def make_suite(
    name: str, started_wall_ns: int, elapsed_ns: int, command: str
) -> ElementTree.Element:
    suite = ElementTree.Element(
        "testsuite",
        name=spoken(name),
        time=_seconds(elapsed_ns),
        # In UTC and without saying so, as the schema wants it.
        timestamp=datetime.fromtimestamp(started_wall_ns // 10**9, UTC)
        .replace(tzinfo=None)
        .isoformat(),
    )
    ElementTree.SubElement(suite, "properties")
    add_property(suite, "command", command)
    return suite


def add_property(suite: ElementTree.Element, name: str, value: str) -> None:
    ElementTree.SubElement(suite[0], "property", name=name, value=spoken(value))


def add_case(
    suite: ElementTree.Element, name: str, class_name: str, elapsed_ns: int
) -> ElementTree.Element:
    return ElementTree.SubElement(
        suite,
        "testcase",
        name=spoken(name),
        classname=spoken(class_name),
        time=_seconds(elapsed_ns),
    )


def add_error(case: ElementTree.Element, kind: str, sentence: str) -> None:
    said = spoken(sentence)
    ElementTree.SubElement(case, "error", message=said, type=kind).text = said


def render_suites(suites: Sequence[ElementTree.Element]) -> bytes:
    """The document. Counts are counted here, so that they always add up."""
    root = ElementTree.Element("testsuites", name="shalott")
    root.extend(suites)
    for element in (*suites, root):
        for attribute, tag in (("tests", "testcase"), ("failures", "failure"), ("errors", "error")):
            element.set(attribute, str(sum(1 for _ in element.iter(tag))))
    for suite in suites:
        suite.set("skipped", "0")
    root.set("time", f"{sum(float(suite.get('time', '0')) for suite in suites):.3f}")
    ElementTree.indent(root)
    document: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return document + b"\n"


def _seconds(elapsed_ns: int) -> str:
    return f"{elapsed_ns / 1e9:.3f}"


def spoken(text: str) -> str:
    return _UNSPEAKABLE.sub("\N{REPLACEMENT CHARACTER}", text)


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
