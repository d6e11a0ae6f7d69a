"""The shape of a JUnit document: suites whose counts add up, and cases that are errors.

Of the standard library alone: a command that is refused at once writes one too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from xml.etree import ElementTree

# XML 1.0 has no way to say these, escaped or not; a broker's error text may hold any of them.
_UNSPEAKABLE = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
NOT_ENDED = "The run did not end: its harness was killed, or it still runs."


def render_refusal(command: str, started_wall_ns: int, sentence: str = NOT_ENDED) -> bytes:
    """The document of a command line that has not become a run."""
    suite = make_suite("shalott", started_wall_ns, 0, command)
    add_error(add_case(suite, command, "shalott.command", 0), "refused", sentence)
    return render_suites([suite])


def combine(documents: Iterable[bytes]) -> bytes:
    """One document with the suites of all."""
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
