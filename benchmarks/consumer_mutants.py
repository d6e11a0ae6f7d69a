"""How soon the plain search finds the planted defects of consumers' code, and who says so.

    python -m benchmarks.consumer_mutants [NAME ...] [--budget 180] [--narrow 60] [--at-once 1]

For each mutant of tests/planted/consumers.py: a checkout with the broken broker, and on it what a
user would type, ``shalott search --system S --profile safe --workload consume`` (or ``group``),
until a checker that should find the defect has, or the CPU budget is spent. CPU seconds are those
of the search and of all its processes, from the interpreter's start on. ``--narrow`` also
says whether the narrow workload (``queue``, ``log``) finds it in so many CPU seconds, by any one.
Prints a line a mutant as it ends, then the table. Exit code 1 if one was not found.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.planted.consumers import MUTANTS  # noqa: E402
from tests.planted.consumers_shape import ConsumerMutant  # noqa: E402
from tests.world.mutants import mutated_checkout  # noqa: E402

BUDGET_S = 180.0
LOOK_S = 0.5
SEEDS = 100_000
TICKS = os.sysconf("SC_CLK_TCK")
NARROW = {"consume": "queue", "group": "log"}


@dataclass(frozen=True, slots=True)
class Found:
    """How a search ended. ``by``: checkers that said no in the seed that counts; "" in none."""

    by: str
    seeds: int
    cpu_s: float


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--budget", type=float, default=BUDGET_S, help="CPU seconds of a search")
    parser.add_argument("--narrow", type=float, default=0.0, help="CPU seconds of another search")
    parser.add_argument("--at-once", type=int, default=1)
    given = parser.parse_args()
    chosen = [each for each in MUTANTS if not given.names or each.name in given.names]
    print(f"load at the beginning: {os.getloadavg()[0]:.1f}")
    with ThreadPoolExecutor(given.at_once) as pool:
        lines = pool.map(lambda mutant: _measure(mutant, given.budget, given.narrow), chosen)
        rows = [row for row in lines if print(_line(row), flush=True) is None]
    missed = [row[0] for row in rows if not row[1].by]
    print(f"{len(rows) - len(missed)} of {len(rows)} found; load: {os.getloadavg()[0]:.1f}")
    if missed:
        print(f"not found: {', '.join(missed)}")
    return 1 if missed else 0


def _measure(
    mutant: ConsumerMutant, budget_s: float, narrow_s: float
) -> tuple[str, Found, Found | None]:
    with TemporaryDirectory() as temporary:
        path = mutated_checkout(mutant.edits, Path(temporary) / "checkout")
        found = _search(mutant, mutant.workload, mutant.checkers, path, budget_s)
        also = None
        if narrow_s:
            also = _search(mutant, NARROW[mutant.workload], (), path, narrow_s)
    return mutant.name, found, also


def _line(row: tuple[str, Found, Found | None]) -> str:
    name, found, also = row
    text = f"{name:32} {found.by or '-':44} {found.seeds:4} seeds {found.cpu_s:6.1f} CPU s"
    if also is None:
        return text
    return f"{text}   narrow: {f'yes, {also.by}, {also.cpu_s:.0f} s' if also.by else 'no'}"


def _search(
    mutant: ConsumerMutant, workload: str, checkers: tuple[str, ...], path: Path, budget_s: float
) -> Found:
    """``checkers``: those of which one must say no; none: any will do."""
    with TemporaryDirectory() as store:
        arguments = (
            *("search", "--system", mutant.system, "--profile", "safe", "--workload", workload),
            *("--seeds", f"1-{SEEDS}", "--jobs", "1", "--keep", "50", "--store", store),
        )
        said = (Path(store) / "said.txt").open("wb")
        child = subprocess.Popen(
            [sys.executable, "-c", "from shalott.harness.cli.main import main; main()", *arguments],
            env={**os.environ, "PYTHONPATH": str(path)},
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
        try:
            return _watch(child, Path(store), checkers, budget_s)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            said.close()


def _watch(
    child: subprocess.Popen[bytes], store: Path, checkers: tuple[str, ...], budget_s: float
) -> Found:
    while True:
        ended = child.poll() is not None
        cpu_s = _cpu_s(child.pid)
        by = _said_no(store, checkers)
        if by or cpu_s > budget_s:
            return Found(by, _seeds(store), cpu_s)
        if ended:
            words = (store / "said.txt").read_text().strip().splitlines()
            raise SystemExit("\n".join(("the search ended by itself:", *words[-20:])))
        time.sleep(LOOK_S)


def _said_no(store: Path, checkers: tuple[str, ...]) -> str:
    """The checkers that broke in a finding in which a wanted one did."""
    for path in sorted(store.glob("search/*/findings/**/results.json")):
        try:
            results = json.loads(path.read_text())["results"]
        except ValueError:
            continue  # it is being written
        broken = [one["checker"] for one in results if one["valid"] is False]
        wanted = [name for name in broken if name in checkers]
        if broken and (wanted or not checkers):
            return ", ".join(dict.fromkeys((*wanted, *broken)))
    return ""


def _seeds(store: Path) -> int:
    logs = list(store.glob("search/*/campaign.jsonl"))
    return sum(log.read_text().count('{"line":"seed"') for log in logs)


def _cpu_s(session: int) -> float:
    """Of all processes of a session, those that ended and were waited for too."""
    total = 0
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        if int(fields[3]) == session:
            total += sum(int(field) for field in fields[11:15])
    return total / TICKS


if __name__ == "__main__":
    sys.exit(main())
