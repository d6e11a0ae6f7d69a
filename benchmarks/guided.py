"""Does a search that learns from its runs come to more than one that draws at random?

    python -m benchmarks.guided [--system dledger] [--budget 60s] [--repetitions 10] [--only NAMES]

Two comparisons on one budget of CPU time, each repeated with seeds of its own:

- what runs showed: distinct features (places in the broker with about how often, and pairs of kinds
  of events in happens-before order) and plans that showed something new. Both searches are probed;
- with --only, which of these mutants of the broker are found: here the random one is not probed, so
  each pays what it costs.

Printed are the figures of each repetition, their medians and ratio, and the two-sided p of Mann and
Whitney's test, by permutations: how often chance alone would part the repetitions so far.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shalott.core.parameters import parse_duration_ms
from shalott.harness.mutants.catalogue import find_mutants
from shalott.harness.mutants.measuring import Measurement, MutantSearch, PlansInTurn, Quiet, measure
from shalott.harness.run.simulate import simulate
from shalott.harness.scenarios.swarm import plain_subject
from shalott.harness.search.corpus import DRAWN_SHARE, Guide
from shalott.harness.search.door import SimulatedRuns
from shalott.harness.search.run_search import run_search
from shalott.harness.search.search import SearchRequest

SEEDS = 100_000  # of a repetition
PERMUTATIONS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedSearch(MutantSearch):
    """``guided``: the guide that the runs are learned with, whichever plans it chooses."""

    guided: Guide

    def guide(self) -> Guide:
        return self.guided


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--system", default="dledger")
    parser.add_argument("--budget", default="60s", help="CPU time of each search")
    parser.add_argument("--repetitions", type=int, default=10)
    parser.add_argument("--only", default="", help="such mutants too: */raft.*")
    arguments = parser.parse_args()
    budget_s = parse_duration_ms("--budget", arguments.budget) / 1000
    with tempfile.TemporaryDirectory() as directory:
        store = Path(directory)
        compare_features(arguments.system, budget_s, arguments.repetitions, store)
        if arguments.only:
            compare_mutants(arguments, budget_s, store)


def seeds_of(repetition: int) -> str:
    first = repetition * SEEDS + 1
    return f"{first}-{first + SEEDS - 1}"


def compare_features(system: str, budget_s: float, repetitions: int, store: Path) -> None:
    shown: dict[bool, list[tuple[int, int]]] = {False: [], True: []}
    for repetition in range(repetitions):
        for learns in (False, True):
            features, plans, runs = explore(system, budget_s, repetition, store, learns=learns)
            shown[learns].append((features, plans))
            say(f"{name_of(learns)} {repetition}: {features} features, {plans} plans, {runs} runs")
    for column, what in enumerate(("features", "plans that showed something new")):
        tell(what, *([each[column] for each in shown[learns]] for learns in (False, True)))


def explore(
    system: str, budget_s: float, repetition: int, store: Path, *, learns: bool
) -> tuple[int, int, int]:
    """Features, plans that showed something new, and runs of one search of the code as it is."""
    asked = measurement(store, budget_s, repetition, learns=learns)
    subjects = tuple(plain_subject(system, asked.profile, each) for each in asked.workloads(system))
    plans, first = PlansInTurn(subjects), repetition * SEEDS + 1
    seeds = range(first, first + SEEDS)
    guide = Guide(plans, seeds, drawn_share=DRAWN_SHARE if learns else 1.0)
    search = SharedSearch(
        subject=subjects[0],
        in_turn=plans,
        seeds=seeds,
        seeds_text=asked.seeds,
        cpu_limit_s=budget_s,
        guided=guide,
    )
    request = SearchRequest(jobs=1, store=str(store / f"{repetition}-{learns}"))
    summary, _ = run_search(search, request, SimulatedRuns(simulate), Quiet(), command="")
    corpus, _ = guide.finish()
    return len(corpus.runs), len(corpus.entries), summary.ran


def compare_mutants(arguments: argparse.Namespace, budget_s: float, store: Path) -> None:
    mutants = [
        each for each in find_mutants(arguments.system, arguments.only) if not each.equivalent
    ]
    found: dict[bool, list[int]] = {False: [], True: []}
    for repetition in range(arguments.repetitions):
        for learns in (False, True):
            asked = measurement(store / f"m{repetition}", budget_s, repetition, learns=learns)
            outcomes = [measure(asked, mutant) for mutant in mutants]
            names = [each.name for each in outcomes if each is not None and each.is_found]
            found[learns].append(len(names))
            say(f"{name_of(learns)} {repetition}: {len(names)} of {len(mutants)} mutants: {names}")
    tell("mutants", found[False], found[True])


def measurement(store: Path, budget_s: float, repetition: int, *, learns: bool) -> Measurement:
    return Measurement(
        store=store,
        simulate=simulate,
        budget_s=budget_s,
        seeds=seeds_of(repetition),
        learns=learns,
    )


def name_of(learns: bool) -> str:
    return "guided" if learns else "random"


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def tell(what: str, random: Sequence[int], guided: Sequence[int]) -> None:
    middle = statistics.median(random), statistics.median(guided)
    ratio = f"{middle[1] / middle[0]:.2f}" if middle[0] else "-"
    say(
        f"{what}: medians {middle[0]:g} at random, {middle[1]:g} guided, ratio {ratio},"
        f" p {p_of(random, guided):.5f}"
    )


def p_of(some: Sequence[int], others: Sequence[int]) -> float:
    """Mann and Whitney, two-sided: the share of random partings with rank sums so far apart."""
    values = np.array([*some, *others])
    ranks = np.array([(values < each).sum() + ((values == each).sum() + 1) / 2 for each in values])
    expected = ranks.mean() * len(some)
    apart = abs(ranks[: len(some)].sum() - expected)
    rng = np.random.default_rng(1)
    drawn = rng.permuted(np.tile(ranks, (PERMUTATIONS, 1)), axis=1)[:, : len(some)].sum(axis=1)
    return float((np.abs(drawn - expected) >= apart - 1e-9).mean())


if __name__ == "__main__":
    # New processes import what was started, and a probed one must begin without the broker.
    del __file__
    globals()["__spec__"] = None
    main()
