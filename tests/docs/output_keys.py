"""The keys of the JSON objects in a run's files, as real runs have them and as the docs list them.

A key is told by where it is: ``extra/observe/claims[].epoch`` is the epoch of a claim in the extra
of a row whose f is observe. A key that is a name (a node, a queue, a cause) is ``*``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from shalott.checkers.checker import Result
from shalott.core.history import History

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "output-keys.md"

# An entry of a list is - `place`: `key` type, `key`, ... A key without a type is an integer.
_ENTRY = re.compile(r"^- `([a-z]+/[^`]+)`: (.*?)(?=^- |^#|^$)", re.MULTILINE | re.DOTALL)
_KEY = re.compile(r"`([^`]+)`([^,`]*)")
_NAMES = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    dict: "object",
    list: "list",
}
# What is below these has names of outcomes, causes, nodes or operations, not of fields.
_OF_NAMES = (
    *("by-f", "errors", "by-cause", "redeliveries-by-cause", "causes", "fates", "deliveries"),
    *(
        "by-acknowledger",
        "by-node",
        "objects",
        "values",
        "certainly-ready-max",
        "consumers",
        "queues",
    ),
    *("fates-by-queue", "deliveries-by-queue", "alive", "groups", "exited", "phases"),
)
_OF_NAMES_OF_NAMES = ("fates-by-queue", "deliveries-by-queue", "matrix", "alive")
OPAQUE = ("linearizability",)  # explanations: docs/reference/output-files.md has their fields
# Also of queues that are no more, of process ids and of quantiles; and sentences.
_VARIABLE = re.compile(r"-?\d+(\.\d+)?|shalott[./-].*|.*[ :].*|p\d+")


def documented() -> dict[str, str]:
    """Of the page: where a key is -> its type, in words.

    What has keys of its own is not listed: ``a`` of ``a[].b`` is a list, of ``a.b`` an object.
    """
    found: dict[str, str] = {}
    for place, body in _ENTRY.findall(PAGE.read_text(encoding="utf-8") + "\n\n"):
        for key, kind in _KEY.findall(" ".join(body.split())):
            parts = key.split(".")
            for end in range(1, len(parts)):
                above = ".".join(parts[:end])
                is_list = above.endswith("[]")
                found.setdefault(
                    f"{place}/{above.removesuffix('[]')}", "list" if is_list else "object"
                )
            found[f"{place}/{key}"] = kind.strip() or "integer"
    return found


def written(history: History, results: Iterable[Result]) -> dict[str, set[str]]:
    """Of a run: where a key is -> the types of its values."""
    found: dict[str, set[str]] = {}
    names = names_of(history)

    def note(place: str, value: Any) -> None:
        for path, kind in _walk(value, names):
            found.setdefault(f"{place}/{generalised(path)}", set()).add(kind)

    faults = ("probe", "trigger")
    for row in history.ops.select(["process", "f", "extra"]).to_pylist():
        extra = json.loads(row["extra"] or "{}")
        is_fault = row["process"] == -1 and "fault" in extra and row["f"] not in faults
        note(f"extra/{'fault' if is_fault else row['f']}", extra)
    for row in history.events.select(["kind", "detail"]).to_pylist():
        note(f"detail/{row['kind']}", json.loads(row["detail"] or "{}"))
    for result in json.loads(msgspec.json.encode(tuple(results))):
        note(f"counts/{result['checker']}", result["counts"])
        note(f"results/{result['checker']}", result["detail"])
        for anomaly in result["anomalies"]:
            note(f"anomaly/{anomaly['kind']}", anomaly["detail"])
    return found


def names_of(history: History) -> frozenset[str]:
    """Of nodes, queues, groups and processes: where they are keys, they say nothing of the form."""
    ops, events = history.ops, history.events
    told = [ops["node"], ops["key"], ops["process"], events["node"], events["group"]]
    found = {str(each) for column in told for each in column.unique().to_pylist() if each}
    return frozenset(found - {"controller", "orderly", "broadcast", "delayed"})  # fields, too


def generalised(path: str) -> str:
    """With ``*`` for keys that are names by where they are."""
    parts = path.split(".")
    for at in range(1, len(parts)):
        above = parts[at - 1]
        if above in _OF_NAMES or (at > 1 and parts[at - 2] in _OF_NAMES_OF_NAMES):
            parts[at] = "*" + ("[]" if parts[at].endswith("[]") else "")
    return ".".join(parts)


def _walk(value: Any, names: frozenset[str], path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, each in value.items():
            name = "*" if key in names or _VARIABLE.fullmatch(key) else key
            below = f"{path}.{name}" if path else name
            yield below, kind_of(each)
            if name not in OPAQUE:
                yield from _walk(each, names, below)
    elif isinstance(value, list):
        for each in value:
            yield from _walk(each, names, f"{path}[]")


def kind_of(value: Any) -> str:
    return "null" if value is None else _NAMES[type(value)]


def pattern_of(key: str) -> re.Pattern[str]:
    """``*`` is one name, which may have dots in it."""
    return re.compile("[^/]+?".join(map(re.escape, key.split("*"))))


def undocumented(found: Mapping[str, set[str]], known: Mapping[str, str]) -> list[str]:
    """Keys that no row of the page has, and those whose types are others than it says."""
    patterns = {key: pattern_of(key) for key in known if "*" in key}
    wrong = []
    for key, kinds in sorted(found.items()):
        told = known.get(key) or next(
            (known[name] for name, pattern in patterns.items() if pattern.fullmatch(key)), None
        )
        if told is None:
            wrong.append(f"{key} is not documented ({', '.join(sorted(kinds))})")
            continue
        others = (
            kinds
            - set(told.replace("?", " null").split())
            - ({"integer"} if "number" in told else set())
        )
        if others:
            wrong.append(f"{key} is {', '.join(sorted(others))}, and documented as {told}")
    return wrong
