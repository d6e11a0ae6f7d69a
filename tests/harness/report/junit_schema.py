"""The shape that Jenkins' junit-10.xsd asks of a document, as data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from xml.etree import ElementTree


@dataclass(frozen=True)
class Shape:
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    children: tuple[str, ...] = ()


SHAPES = {
    "testsuites": Shape((), ("name", "time", "tests", "failures", "errors"), ("testsuite",)),
    "testsuite": Shape(
        ("name", "tests"),
        (
            *("failures", "errors", "time", "disabled", "skipped", "timestamp", "hostname"),
            *("id", "package"),
        ),
        ("properties", "testcase", "system-out", "system-err"),
    ),
    "properties": Shape(children=("property",)),
    "property": Shape(("name", "value")),
    "testcase": Shape(
        ("name", "classname", "time"),  # the XSD lets time out; we promise it
        (),
        ("skipped", "error", "failure", "system-out", "system-err"),
    ),
    "error": Shape((), ("type", "message")),
    "failure": Shape((), ("type", "message")),
    "system-out": Shape(),
}
COUNTED = {"tests": "testcase", "failures": "failure", "errors": "error"}


def faults_of(document: bytes) -> list[str]:
    """What is wrong with a document, a phrase each."""
    root = ElementTree.fromstring(document)
    if root.tag != "testsuites":
        return [f"the root is {root.tag}"]
    return [*_misshapen(root), *_miscounted(root), *_named_twice(root)]


def _misshapen(element: ElementTree.Element) -> Iterator[str]:
    shape = SHAPES[element.tag]
    for name in shape.required:
        if name not in element.attrib:
            yield f"{element.tag} has no {name}"
    for name in element.attrib:
        if name not in (*shape.required, *shape.optional):
            yield f"{element.tag} has {name}"
    for child in element:
        if child.tag not in shape.children:
            yield f"{child.tag} in {element.tag}"
        else:
            yield from _misshapen(child)


def _miscounted(root: ElementTree.Element) -> Iterator[str]:
    for element in (root, *root):
        for attribute, tag in COUNTED.items():
            counted = sum(1 for _ in element.iter(tag))
            if element.get(attribute) != str(counted):
                yield f"{element.tag} says {element.get(attribute)} {attribute}, not {counted}"


def _named_twice(root: ElementTree.Element) -> Iterator[str]:
    seen: set[tuple[str | None, str | None]] = set()
    for case in root.iter("testcase"):
        name = (case.get("classname"), case.get("name"))
        if name in seen:
            yield f"two cases are {name}"
        seen.add(name)
