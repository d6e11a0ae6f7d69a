"""`shalott mutants`: does the plain search find faults for which it was not prepared, and how soon?

Mutants are listed, told, and measured (harness/mutants); the same command goes on with what the
store has. ``--document`` writes docs/evidence/detection.md of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from shalott.core.command_options import Argument, Option
from shalott.core.errors import UsageError
from shalott.core.parameters import parse_duration_ms
from shalott.harness.cli.options import STORE_HELP, with_options
from shalott.harness.cli.search import pools
from shalott.harness.mutants.by_hand import BY_HAND
from shalott.harness.mutants.catalogue import drawn, find_mutants
from shalott.harness.mutants.document import DOCUMENT, load_document, that_count, write_document
from shalott.harness.mutants.measuring import Measurement, measure, measure_control
from shalott.harness.mutants.mutant import Mutant
from shalott.harness.mutants.outcomes import (
    CONTROL,
    Outcome,
    Outcomes,
    by_system,
    curve,
    sentence,
    survivors,
)
from shalott.harness.run.request import STORE
from shalott.harness.run.simulate import simulate
from shalott.harness.run.simulation_record import code_fingerprint

INTERRUPTED = 2


def add_commands(app: typer.Typer) -> None:
    app.command()(with_options(mutants))


@dataclass(frozen=True, slots=True, kw_only=True)
class MutantsOptions:
    """Which mutants, and what is done with them."""

    name: Annotated[str | None, Argument("Tell all about this one.")] = None
    measure: Annotated[bool, Option("Search each, or go on.")] = False
    document: Annotated[
        bool, Option("Write docs/evidence/detection.md from what was measured.")
    ] = False
    system: Annotated[str, Option("Of this system only.")] = ""
    only: Annotated[str, Option("Whose name has this in it: */raft.*.")] = ""
    operator: Annotated[str, Option("by-hand, an operator, or all.")] = BY_HAND
    count: Annotated[int, Option("So many, drawn; 0: all.")] = 0
    budget: Annotated[str, Option("CPU time for each mutant.")] = "300s"
    seeds: Annotated[str, Option("How many, or a range.")] = "1-100000"
    jobs: Annotated[int, Option("Processes for each mutant.", ("--jobs", "-j"))] = 1
    learn: Annotated[bool, Option("Mutate plans, as search --corpus.")] = False
    spark: Annotated[str, Option("On a Spark cluster, as search --spark.")] = ""
    out: Annotated[Path, Option("The folder of the documents.")] = Path("docs")
    store: Annotated[str, Option(STORE_HELP)] = str(STORE)


def mutants(asked: MutantsOptions) -> None:
    """Change the brokers' code on purpose, and measure whether the plain search finds it."""
    if asked.jobs < 1 or asked.count < 0:
        raise UsageError("give 1 or more --jobs, and 0 or more mutants to --count")
    console = Console(soft_wrap=True)
    outcomes = Outcomes(asked.store)
    if asked.document:
        measured = {**load_document(asked.out), **outcomes.by_name}
        write_document(asked.out, that_count(measured))
        console.print(Text(f"{asked.out / DOCUMENT} is written."))
        return
    kind = "" if asked.operator == "all" else asked.operator
    found = find_mutants(asked.system, asked.only, kind)
    if asked.name is not None:
        tell(find_mutants("", asked.name, ""), outcomes.by_name, console)
    elif asked.measure:
        chosen = drawn([each for each in found if not each.equivalent])
        with pools(asked.spark, asked.store, asked.jobs) as make_pool:
            measurement = Measurement(
                store=asked.store,
                simulate=simulate,
                budget_s=parse_duration_ms("--budget", asked.budget) / 1000,
                seeds=asked.seeds,
                jobs=asked.jobs,
                learns=asked.learn,
                make_pool=make_pool,
            )
            code = measure_all(measurement, chosen[: asked.count or None], outcomes, console)
        raise typer.Exit(code)
    else:
        for each in found:
            console.print(Text(f"{each.name}: {each.breaks}. {_state(each, outcomes.by_name)}"))


def tell(found: Sequence[Mutant], outcomes: Mapping[str, Outcome], console: Console) -> None:
    """One mutant in full. Raises UsageError if several are meant."""
    if len(found) > 1:
        some = ", ".join(each.name for each in found[:5])
        raise UsageError(f"{len(found)} mutants have that in their name: {some}")
    (mutant,) = found
    console.print(Text(mutant.name, style="bold"))
    console.print(Text(f"{mutant.breaks}. {_state(mutant, outcomes)}"))
    for line in mutant.diff():
        console.print(Text(line))


def _state(mutant: Mutant, outcomes: Mapping[str, Outcome]) -> str:
    if mutant.equivalent:
        return f"Equivalent: {mutant.equivalent}."
    outcome = outcomes.get(mutant.name)
    return "" if outcome is None else f"[{result_of(outcome)}]"


def result_of(outcome: Outcome) -> str:
    spent = f"{outcome.ran} runs, {outcome.cpu_s:.1f} CPU s"
    if outcome.is_found:
        whom = f"{', '.join(outcome.checkers)} ({', '.join(outcome.classes)})"
        return f"found by {whom} in seed {outcome.seed}: {spent}"
    failed = f"; the harness failed in {outcome.failed}" if outcome.failed else ""
    return f"not found: {spent}, {outcome.entered} of them came to it{failed}"


def measure_all(
    measurement: Measurement, chosen: Sequence[Mutant], outcomes: Outcomes, console: Console
) -> int:
    """What the store lacks; the exit code. Raises UsageError, StoreError."""
    wanted: list[tuple[str, Mutant | None]] = [(each.system, each) for each in chosen]
    wanted += [(system, None) for system in dict.fromkeys(each.system for each in chosen)]
    code = code_fingerprint()
    for system, mutant in wanted:
        name = f"{system}/{CONTROL}" if mutant is None else mutant.name
        known = outcomes.by_name.get(name)
        if known is None or not known.holds_for(
            mutant,
            code,
            measurement.seeds,
            measurement.budget_s,
            learns=measurement.learns,
        ):
            known = (
                measure_control(measurement, system)
                if mutant is None
                else measure(measurement, mutant)
            )
            if known is None:
                console.print(Text("Interrupted: the same command goes on."))
                return INTERRUPTED
            outcomes.add(known)
        told = control_result(known) if mutant is None else result_of(known)
        console.print(Text(f"{name}: {told}"))
    _close([outcomes.by_name[each.name] for each in chosen], console)
    return 0


def control_result(outcome: Outcome) -> str:
    found = ", ".join(f"seed {seed}" for seed in outcome.void) or "nothing"
    return f"{outcome.ran} runs, {outcome.cpu_s:.1f} CPU s of the code as it is: {found} found"


def _close(measured: Sequence[Outcome], console: Console) -> None:
    rows = by_system({each.name: each for each in measured})
    for system, own in [*rows.items(), ("all", list(measured))]:
        for last in curve(own)[-1:]:
            console.print(Text(f"{system}: within {last.cpu_s:g} CPU s {last}"))
    for each in survivors(measured):
        console.print(Text(f"{each.name}: {sentence(each)}"))
