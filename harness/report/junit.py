"""junit.xml: one test case a checker, for whatever shows test results in a CI.

An invalid result is a <failure>, an unknown one an <error>: nobody knows whether the promise was
kept, and a CI must not show that as green, which a <skipped> would. A valid result that has
something to say says it in <system-out>. The dialect is the one that Jenkins, GitLab and pytest
share.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from xml.etree import ElementTree

from shalott.checkers.base import Result
from shalott.harness.core.plan import Plan
from shalott.harness.report.meta import ReportMeta
from shalott.harness.report.words import findings, valid_word

# XML 1.0 has no way to say these, escaped or not; a broker's error text may hold any of them.
_UNSPEAKABLE = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_LINES_MAX = 50


def render_junit(plan: Plan, results: Sequence[Result], meta: ReportMeta) -> bytes:
    """The whole document."""
    words = [valid_word(result.valid) for result in results]
    suite = ElementTree.Element(
        "testsuite",
        name=_spoken(plan.name),
        tests=str(len(results)),
        failures=str(words.count("invalid")),
        errors=str(words.count("unknown")),
        skipped="0",
        time=f"{meta.elapsed_ns / 1e9:.3f}",
        timestamp=datetime.fromtimestamp(meta.started_wall_ns // 10**9, UTC).isoformat(),
    )
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in (("seed", str(plan.seed)), ("command", meta.command)):
        ElementTree.SubElement(properties, "property", name=name, value=_spoken(value))
    class_name = f"shalott.{plan.system.name}.{plan.system.profile}.{plan.workload.name}"
    for result in results:
        _case(suite, class_name, result)
    suites = ElementTree.Element("testsuites")
    suites.append(suite)
    ElementTree.indent(suites)
    document: bytes = ElementTree.tostring(suites, encoding="utf-8", xml_declaration=True)
    return document + b"\n"


def _case(suite: ElementTree.Element, class_name: str, result: Result) -> None:
    case = ElementTree.SubElement(
        suite, "testcase", name=_spoken(result.checker), classname=_spoken(class_name), time="0"
    )
    word = valid_word(result.valid)
    sentences = [sentence for _, _, sentence in findings([result])]
    if word == "valid":
        if sentences:
            ElementTree.SubElement(case, "system-out").text = _spoken("\n".join(sentences))
        return
    kind = "failure" if word == "invalid" else "error"
    reason = sentences[0] if sentences else f"{result.checker} is {word}."
    outcome = ElementTree.SubElement(case, kind, message=_spoken(reason), type=word)
    outcome.text = _spoken("\n".join(_lines(result, sentences)))


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


def _spoken(text: str) -> str:
    return _UNSPEAKABLE.sub("\N{REPLACEMENT CHARACTER}", text)
