"""The histories of histories.txt: how each is written, and what is right about it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

PLACE = Path(__file__).parent / "histories.txt"
TYPES = {">": "invoke", "+": "ok", "?": "info", "-": "fail", "!": "fail", "~": "fail"}
VERDICTS = ("valid", "invalid", "unknown", "refused")

_ENTRY = re.compile(r"(:nemesis|\d+)([>+?!~-])(\S+)(?: (.*))?")
_FIELDS = re.compile(r"(?:^| )(?=:(?:error|time|index) )")


@dataclass
class Written:
    name: str
    model: str  # "" where nothing fits
    verdict: str
    options: tuple[str, ...]  # under which an unknown one is not invalid
    words: tuple[str, ...]  # that must be said
    is_told: bool  # by --model
    is_keyed: bool  # by --keyed
    edn: str
    failures: dict[int, str] = field(default_factory=dict)  # by operation: "-", "!" or "~"

    @property
    def arguments(self) -> list[str]:
        model = ["--model", self.model] if self.is_told else []
        return [*model, *(["--keyed"] if self.is_keyed else [])]


def written_histories() -> Iterator[Written]:
    blocks = PLACE.read_text().split("\n== ")
    for block in blocks[1:]:
        head, *lines = block.splitlines()
        name, _, right = head.partition(": ")
        first, *words = right.split("; ")
        *model, verdict = first.partition(" ")[0:1] if first in VERDICTS else _split(first)
        told = model[0] if model else ""
        verdict, *options = verdict.split()
        body = " ".join(line for line in lines if line and not line.startswith("#"))
        edn, failures = _entries(body)
        yield Written(
            name, told.rstrip("!"), verdict, tuple(options), tuple(words),
            told.endswith("!"), told.endswith("!!"), edn, failures,
        )  # fmt: skip


def _split(first: str) -> tuple[str, str]:
    model, _, verdict = first.partition(" ")
    return model, verdict


def _entries(body: str) -> tuple[str, dict[int, str]]:
    lines, failures, open_by = [], dict[int, str](), dict[str, int]()
    operations = 0
    for entry in body.split("; "):
        found = _ENTRY.fullmatch(entry.strip())
        assert found is not None, entry
        process, mark, f, rest = found.groups()
        value, *fields = _FIELDS.split(rest or "")
        lines.append(
            f"{{:type :{TYPES[mark]}, :process {process}, :f :{f}, :value {value.strip() or 'nil'}"
            f"{''.join(f', {each.strip()}' for each in fields)}}}\n"
        )
        if mark == ">":
            open_by[process] = operations
            operations += 1
        elif TYPES[mark] == "fail":
            failures[open_by[process]] = mark
    return "".join(lines), failures
