"""A found finding as a report that may be sent to those who make the system: one Markdown file.

It says what was promised, what was done, what happened, and what the nodes wrote meanwhile, and how
it is run again. It lies beside the run that showed it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shalott.core.doors import typed_command
from shalott.core.plan import FaultAction, Plan, dump_plan
from shalott.core.published import PublishedFinding
from shalott.harness.published.evidence import text_files
from shalott.harness.report.results import RunResults

REPORT: Final = "upstream.md"
LINES_MAX: Final = 15  # of one node
LINE_MAX: Final = 240  # characters of one line
ANOMALIES_MAX: Final = 8
PACKAGES_MAX: Final = 6
TROUBLE: Final = re.compile(
    r"panic|fatal|corrupt|checksum|truncat|discard|diverge|orphan|\[ERR", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Minimal:
    """Of a plan that was shrunk: how many faults it had, and how many runs it took to show the
    finding again."""

    faults_before: int
    runs: int


def report_of(
    finding: PublishedFinding,
    plan: Plan,
    results: RunResults,
    directory: Path,
    minimal: Minimal | None = None,
) -> str:
    return "\n".join(
        [
            *_head(finding, plan, results),
            *_told(finding, plan, results, directory),
            *(_again(finding, plan) if minimal is None else _again_minimal(plan, minimal)),
        ]
    )


def _head(finding: PublishedFinding, plan: Plan, results: RunResults) -> Iterator[str]:
    yield f"# {finding.title}"
    yield ""
    told = ", ".join(f"{name} {each}" for name, each in sorted(results.versions.items()))
    packages = results.tested.packages
    own = ", ".join(f"{name} {packages[name]}" for name in sorted(packages)[:PACKAGES_MAX])
    yield f"- System: {plan.system.name} {version_of(plan)}".rstrip() + (f" ({own})" if own else "")
    yield f"- Versions: {told or 'not told'}"
    yield f"- Published: {finding.source}"
    if finding.mended:
        yield f"- Said to be mended in: {finding.mended}"
    yield f"- Found by: Shalott, seed {results.seed}, run {results.run or results.name}"
    yield ""


def version_of(plan: Plan) -> str:
    return str(plan.system.parameters.get("version", ""))


def _told(
    finding: PublishedFinding, plan: Plan, results: RunResults, directory: Path
) -> Iterator[str]:
    yield from ("## What was promised", "")
    yield finding.promised or "Nothing: the manual says that this may happen so."
    yield from ("", "## What was done", "")
    yield (
        f"{len(plan.cluster.nodes)} nodes ({plan.cluster.backend}); {plan.workload.name} at"
        f" {plan.workload.rate_hz:g} operations a second from {plan.workload.concurrency} clients"
        f" for {plan.time_limit_ms / 1000:g} s; profile `{plan.system.profile}`."
    )
    settings = {**plan.system.parameters, **plan.system.policy}
    yield from ("", "Settings: " + ", ".join(f"`{k}={v}`" for k, v in settings.items()) + ".", "")
    yield from (f"- {_fault_words(action)}" for action in plan.faults)
    yield from ("", "## What happened", "", results.headline, "")
    for result in results.results:
        if result.valid is False:
            yield from (f"- {each.summary}" for each in result.anomalies[:ANOMALIES_MAX])
            counts = {name: value for name, value in result.counts.items() if value}
            told = ", ".join(f"{name} {value:g}" for name, value in counts.items())
            yield f"- {result.checker} counted: {told}."
    yield from ("", "## What the nodes wrote", "")
    yield from _lines(finding, directory)


def _again(finding: PublishedFinding, plan: Plan) -> Iterator[str]:
    words = ("--system", finding.system, "--version", version_of(plan), *finding.command)
    again = typed_command("test", *words, "--seed", str(plan.seed))
    yield from ("", "## How to run it again", "", "```", again, "```", "")
    yield "The whole plan is `plan.json` beside this file (`shalott test --plan plan.json`); every"
    yield "operation is in `history.parquet`."
    yield ""


def _again_minimal(plan: Plan, minimal: Minimal) -> Iterator[str]:
    """With the plan itself: a report goes where the store does not."""
    count, runs = len(plan.faults), minimal.runs
    yield from ("", "## How to run it again", "")
    left = f"{count} {'is' if count == 1 else 'are'} left"
    shown = "its first run" if runs == 1 else f"one of {runs} runs"
    yield f"The plan is minimal: of the faults of the first one ({minimal.faults_before}) {left},"
    yield f"and it showed this in {shown}. Put it into `plan.json`:"
    yield from ("", "```", typed_command("test", "--plan", "plan.json"), "```", "")
    yield from ("```json", dump_plan(plan).decode().rstrip(), "```", "")


def _fault_words(action: FaultAction) -> str:
    nodes = f" ({', '.join(action.nodes)})" if action.nodes else ""
    told = "".join(f", {name} {value}" for name, value in action.parameters.items())
    return (
        f"at {action.at_ms / 1000:g} s for {action.duration_ms / 1000:g} s: {action.kind}"
        f" {action.target}{nodes}{told}"
    )


def _lines(finding: PublishedFinding, directory: Path) -> Iterator[str]:
    pattern = re.compile(finding.log) if finding.log else TROUBLE
    nodes = sorted(directory.glob("nodes/*"))
    found = False
    for node in nodes:
        lines = [
            line.strip()[:LINE_MAX]
            for path in text_files(node)
            for line in path.read_text(errors="replace").splitlines()
            if pattern.search(line)
        ]
        if lines:
            found = True
            more = len(lines) - LINES_MAX
            yield from (f"{node.name}:", "", "```", *lines[:LINES_MAX])
            yield from (f"... and {more} more", "```", "") if more > 0 else ("```", "")
    if not found:
        yield f"No line matches `{pattern.pattern}`."
