"""`shalott bugs --published`: what is published of systems, run again, and a page a system.

Exit codes: 0 if each row was decided on the releases that were asked for and the newest one does
not show it, 1 if the newest one does, 2 if runs proved too little, as of any verdict.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec
from rich.console import Console
from rich.text import Text

from shalott.cluster.systems.record import SYSTEMS, SystemRecord
from shalott.core.errors import UsageError
from shalott.core.plan import Plan, load_plan
from shalott.core.published import FINDINGS, PublishedFinding, find_findings
from shalott.harness.cli import explain
from shalott.harness.cli.markdown import item, wrapped
from shalott.harness.cli.test import read_words
from shalott.harness.originals.evidence import Look
from shalott.harness.originals.running import run_stored
from shalott.harness.published.document import (
    DOCUMENT,
    PAGES,
    make_folder,
    memory_of,
    short_rows,
    write_document,
)
from shalott.harness.published.evidence import Published, keep, tally_on
from shalott.harness.published.minimal import report_minimal
from shalott.harness.published.running import FindingsRequest, run_findings
from shalott.harness.run.atomic_file import write_atomically
from shalott.harness.run.backends import choose_backend
from shalott.harness.run.plan_checks import check_plan, requirements_of
from shalott.harness.run.planning import make_plan
from shalott.harness.run.simulate import simulate
from shalott.harness.shrinking.real_shrink import ShrinkRequest, shrink_real
from shalott.harness.shrinking.simulated_shrink import shrink_plan
from shalott.workloads.record import WORKLOADS

VALID, INVALID, UNKNOWN = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Shrinking:
    """How much a minimal plan may cost. See ``Shrink``."""

    budget: int
    time_limit: str

    def __call__(self, plan: Path, cluster: str, anomaly: str, out: Path) -> None:
        if cluster == "sim":
            shrink_plan(plan, budget=self.budget, anomaly=anomaly, out=out, simulate=simulate)
            return
        shrink_real(
            ShrinkRequest(
                path=plan,
                cluster=cluster,
                anomaly=anomaly,
                out=out,
                budget=self.budget,
                time_limit=self.time_limit,
                jobs=1,  # side by side they would be in each other's way
            )
        )


def run_published(
    name: str | None,
    asked: FindingsRequest,
    directory: Path,
    store: Path,
    console: Console,
    shrink: Shrinking | None = None,
) -> int:
    """Run what is missing, and write the document. Raises UsageError."""
    findings = find_findings(name)

    def tell(finding: PublishedFinding, look: Look) -> None:
        said = f"void: {look.void}" if look.void else "found" if look.found else "not found"
        seen = f"{', '.join(look.classes) or 'valid'}; run {look.run}"
        console.print(Text(f"{finding.name}: {said} on {look.release}; {seen}"))

    run_plan = partial(run_stored, store_root=store)
    kept = run_findings(findings, asked, plan_of, run_plan, directory, tell)
    write_documents(directory, kept)
    console.print(Text(f"{directory / DOCUMENT} is written."))
    if shrink is not None:
        for finding in findings:
            looks = kept.looks.get(finding.name, ())
            report = report_minimal(finding, looks, store, shrink, run_plan)
            console.print(Text(f"{finding.name}: {report} is to be sent upstream."))
    return exit_code(findings, asked, kept)


def exit_code(findings: Sequence[PublishedFinding], asked: FindingsRequest, kept: Published) -> int:
    codes = set()
    for finding in findings:
        for release in asked.releases(finding):
            tally = tally_on(kept.looks.get(finding.name, ()), release)
            if release == finding.newest and tally.found:
                codes.add(INVALID)
            elif tally.runs < asked.repeat:
                codes.add(UNKNOWN)
    return INVALID if INVALID in codes else UNKNOWN if codes else VALID


def document_published(directory: Path, console: Console) -> int:
    """Write the document, and the pages of systems, from what was run before."""
    write_documents(directory, keep(directory, FINDINGS.records()))
    console.print(Text(f"{directory / DOCUMENT} is written."))
    return VALID


def plan_of(finding: PublishedFinding, release: str, seed: int) -> Plan:
    """The finding's plan on a release. Raises UsageError, naming the finding."""
    words = ("--system", finding.system, "--version", release, *finding.command)
    try:
        request, series = read_words(words)
        if series.plan is not None:
            plan = _of_stored(load_plan(series.plan), release)
        else:
            backend = choose_backend(request.cluster, request.system).backend
            plan = make_plan(request, backend=backend, seed=(request.seed or 0) + seed)
    except UsageError as error:
        raise UsageError(f"{finding.name} on {release}: {error}") from error
    return msgspec.structs.replace(plan, name=f"{finding.name}-{release}")


def _of_stored(plan: Plan, release: str) -> Plan:
    parameters = {**plan.system.parameters, "version": release}
    system = msgspec.structs.replace(plan.system, parameters=parameters)
    plan = msgspec.structs.replace(plan, system=system)
    plan = msgspec.structs.replace(plan, requires=requirements_of(plan))
    check_plan(plan)
    return plan


# -- a page a system -------------------------------------------------------------------------------


def write_documents(directory: Path, kept: Published) -> None:
    """published.md, and the page of each system that is here and has findings; those of others
    stay as they were. Raises StoreError."""
    write_document(directory, kept)
    make_folder(directory / PAGES)
    for name in sorted({each.system for each in kept.findings.values()}):
        if SYSTEMS.has(name):
            text = page(SYSTEMS.find(name), kept)
            write_atomically(directory / PAGES / f"{name}.md", text.encode())
    there = sorted(path.stem for path in (directory / PAGES).glob("*.md"))
    listed = index(name for name in there if name != "index")
    write_atomically(directory / PAGES / "index.md", listed.encode())


def index(systems: Iterable[str]) -> str:
    """Of all pages that there are, also of those whose plug-ins are not here."""
    lines = [
        "# Systems of others",
        "",
        wrapped(
            "For users who ask what was found in a system: a page each, with what it promises, what"
            " was found by release, and its gaps. Generated by `shalott bugs --published"
            " --document`."
        ),
        "",
        *(item(f"[{name}]({name}.md)") for name in systems),
    ]
    return "\n".join(lines).rstrip() + "\n"


def page(record: SystemRecord, kept: Published) -> str:
    """What a system promises, what may be lost, what was found by release, what is not tested."""
    head, _, told = explain.system_text(record).partition("\n\n")
    lines = [
        f"# {head.removeprefix('## ')}",
        "",
        wrapped(
            "For users of this system. Generated by `shalott bugs --published --document`; all"
            f" parameters: `shalott systems {record.name}`."
        ),
        "",
        told.partition("\n\nParameters:")[0],
        "",
        "## What it promises",
        "",
        *_promises(record),
        "",
        "## What was found",
        "",
        *short_rows(kept, record.name),
        "",
        *(item(each) for each in memory_of(kept, record.name)),
        item("[All of it](../published.md), with numbers, commands and every run."),
        "",
        "## Gaps",
        "",
        *_gaps(record),
    ]
    return "\n".join(lines) + "\n"


def _promises(record: SystemRecord) -> Iterator[str]:
    for name, profile in record.profiles.items():
        yield item(f"`{name}`: {profile.promise or 'what its manual says is not noted here'}.")
    plan = explain.sample_plan(record, profile="safe" if "safe" in record.profiles else "")
    if transactions := record.transactions(plan):
        yield item(f"Transactions are {transactions.promises}.")
    if queues := record.queues(plan):
        yield item(f"Queues deliver {queues.delivery}.")
    if registers := record.registers(plan):
        yield item(f"Registers are {registers.promises}.")


def _gaps(record: SystemRecord) -> Iterator[str]:
    yield from (item(gap) for gap in record.gaps)
    shared = [each for each in WORKLOADS.records() if not each.fits(record.speaks)]
    missing = [need for each in shared for need in (each.or_needs or each.needs)]
    told = sorted(set(missing) & {"queues", "registers", "partitions", "transactions"})
    if told:
        yield item(f"It is not spoken to as: {', '.join(told)}.")
    worlds = [world for world in ("docker", "local", "ssh", "sim") if world not in record.worlds]
    yield item(f"It does not run in: {', '.join(worlds) or 'no world, it runs in all'}.")
