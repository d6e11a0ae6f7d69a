"""What lies beside a report, and the commands that go on from it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import quote

from shalott.core.plan import Plan
from shalott.harness.report.meta import ReportMeta

FILES_MAX = 60  # listed of one node

# In the order in which they are listed, with what they are.
_OWN = {
    "plan.json": "plan",
    "history.parquet": "history",
    "events.parquet": "node events",
    "results.json": "results",
    "junit.xml": "JUnit",
    "log.txt": "log of the harness",
    "simulation.json": "simulation",
    "minimal.json": "minimal plan",
    "story.txt": "story",
    "history.jsonl": "recording",
}


@dataclass(frozen=True, slots=True)
class FileLink:
    """``href`` is relative to the report, and can be no address of elsewhere."""

    name: str
    href: str


@dataclass(frozen=True, slots=True)
class FileGroup:
    title: str  # "" of the run itself, or a node
    links: list[FileLink]
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class ToldCommand:
    id: str
    says: str
    text: str


def file_groups(files: Sequence[str]) -> list[FileGroup]:
    """Links to what is there: the run's own files, then each node's."""
    present = dict.fromkeys(files)
    own = [FileLink(words, _href(name)) for name, words in _OWN.items() if name in present]
    groups = [FileGroup("", own)] if own else []
    by_node: dict[str, list[FileLink]] = {}
    for name in sorted(present):
        parts = PurePosixPath(name).parts
        if len(parts) > 2 and parts[0] == "nodes":
            link = FileLink("/".join(parts[2:]), _href(name))
            by_node.setdefault(parts[1], []).append(link)
    for node, links in by_node.items():
        groups.append(FileGroup(node, links[:FILES_MAX], max(0, len(links) - FILES_MAX)))
    return groups


def _href(name: str) -> str:
    """ "./" goes before it, so that no name is taken for a scheme."""
    return "./" + quote(name)


def commands_told(plan: Plan, meta: ReportMeta, valid: bool | str) -> list[ToldCommand]:
    """What repeats the run; and of one that went wrong, what makes its plan small."""
    told = [ToldCommand("repeat", "This runs it again:", meta.command)]
    if not meta.directory:
        return told
    stored = shlex.quote(str(PurePosixPath(meta.directory) / "plan.json"))
    told.append(
        ToldCommand(
            "replay",
            "With the very faults of this run, their targets as they were found:",
            f"shalott replay {stored}",
        )
    )
    if valid is False and plan.cluster.backend == "sim":
        told.append(
            ToldCommand("shrink", "This makes its plan as small as it can be:",
                        f"shalott shrink {stored}")
        )  # fmt: skip
    return told
