"""How fast the linearizability engine is, and how much memory it takes, beside what it must reach.

    python benchmarks/checking.py [--quick] [--only WORD[,WORD]] [--runs N] [--out DIRECTORY]

Prints one line for each figure: CPU seconds (the least of N runs, each in a process of its own) and
peak resident memory of that process, with the bar beside it. Then time and memory against the
number of operations and of clients, as tables and plotted (DIRECTORY/*.svg), the same histories by
Porcupine, if it can be built (benchmarks/second_opinion.py), and the same work by whichever peers
are installed (benchmarks/peers.py). What a figure holds:

- A plain name: checkers.linearizability.checking.check on a history that is in memory as columns,
  as a reader leaves it, to the verdict: encoding, the monitor, the general search. "+ prefix": with
  the shortest invalid prefix, which check finds if asked to. Reading the file is not in it.
- "etcd logs": all of them in one process: opened, read, checked; imports are not in it, but are in
  the second of the two figures.
- "command": `shalott check FILE --model M`, from the start of the interpreter to its end.

Histories are drawn once (benchmarks/histories.py) and kept in the temporary directory. --quick: a
hundredth of the operations and no bars. Exits with 1 if a bar is missed or a verdict is wrong.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import peers, scaling, second_opinion  # noqa: E402
from benchmarks.histories import Load  # noqa: E402
from benchmarks.processes import measure, run  # noqa: E402

MB: Final = 1_000_000
TIME_LIMIT_S: Final = 300.0  # of the clock, not of the CPU
HISTORIES: Final = Path(os.environ.get("SHALOTT_HISTORIES", ROOT.parent / "shared/histories"))
EXITS: Final = {0: True, 1: False, 2: "unknown"}


@dataclass(frozen=True, slots=True)
class Figure:
    """One line: a history, how it is checked, and what is allowed."""

    name: str
    model: str
    load: Load
    limit_s: float | None = None
    limit_mb: float | None = None
    prefix: bool = False
    file: str = ""  # the whole command, on a file with this ending


FIFO: Final = Load(1_000_000, 50, 0.01)
CAS: Final = Load(1_000_000, 10)


def spoiled(figure: Figure, *violations: str) -> Iterator[Figure]:
    """The figure with each violation, without and with the shortest prefix."""
    for violation in violations:
        load = replace(figure.load, violation=violation)
        name = f"{figure.name}, {violation}"
        yield replace(figure, name=name, load=load)
        yield replace(figure, name=f"{name} + prefix", load=load, prefix=True, limit_s=None)


def figures() -> Iterator[Figure]:
    """Every line of the table."""
    queue = Figure("FIFO queue 1e6, 50 clients, 1 % crashed", "fifo-queue", FIFO, 0.05, 150)
    yield queue
    yield from spoiled(queue, "order", "lost", "repeated", "fresh")
    register = Figure("register 1e6, 50 clients, 1 % crashed", "register", FIFO, 0.07, 150)
    yield register
    yield from spoiled(register, "stale", "fresh")
    for model in ("unordered-queue", "set", "log", "mutex"):
        yield Figure(f"{model} 1e6, 50 clients, 1 % crashed", model, FIFO)
    cas = Figure("CAS 1e6, 10 clients", "cas-register", CAS, 1.0, 300)
    yield cas
    yield from spoiled(cas, "stale", "fresh", "exhausted")
    wide = Figure("CAS 1e4, 50 clients", "cas-register", Load(10_000, 50), 0.5)
    yield wide
    yield from spoiled(wide, "stale", "fresh")
    for clients, operations, values in ((50, 10_000, 5), (50, 100_000, 5), (50, 10_000, 8)):
        load = Load(operations, clients, values=values, durations="exponential")
        title = f"CAS {operations:.0e}, {clients} clients, exponential durations, {values} values"
        yield Figure(title, "cas-register", load)
    for name, operations, limit_s in (("1e4", 10_000, 5.0), ("1e5", 100_000, 60.0)):
        load = Load(operations, 10, 0.01)
        hard = Figure(f"CAS {name}, 10 clients, 1 % crashed", "cas-register", load, limit_s)
        yield hard
        yield from spoiled(hard, "stale", "fresh", "exhausted")
    for name, model, load, limit_s in (
        ("parquet", "fifo-queue", FIFO, 0.8),
        ("parquet", "register", FIFO, 0.8),
        ("edn", "fifo-queue", FIFO, 4.0),
        ("edn", "cas-register", CAS, 4.0),
        ("jsonl", "fifo-queue", FIFO, None),
    ):
        title = f"command, {name}, {model} 1e6"
        yield Figure(title, model, load, limit_s, None, True, name)


# --- measuring ------------------------------------------------------------------------------------


def of_history(figure: Figure, runs: int) -> dict[str, Any]:
    """What ``check`` takes on the figure's history."""
    work = {
        "task": "history",
        "path": drawn(figure, "npz"),
        "model": figure.model,
        "prefix": figure.prefix,
        "by": "auto",
        "time_limit_s": TIME_LIMIT_S,
    }
    return measure(work, runs)


def of_command(figure: Figure, runs: int) -> dict[str, Any]:
    """What the whole command takes on the figure's file."""
    command = [
        sys.executable,
        "-m",
        "shalott.harness.cli.main",
        "check",
        drawn(figure, figure.file),
    ]
    done = [run([*command, "--model", figure.model]) for _ in range(runs)]
    best = min(done, key=lambda ran: ran.cpu_s)
    if best.exit not in EXITS:
        return {"cpu_s": 0.0, "peak": 0, "valid": None, "how": f"failed: {best.errors[-200:]}"}
    peak = max(ran.peak for ran in done)
    return {"cpu_s": best.cpu_s, "peak": peak, "valid": EXITS[best.exit], "how": ""}


def drawn(figure: Figure, ending: str) -> str:
    work = {"task": "draw", "model": figure.model, "load": asdict(figure.load), "ending": ending}
    return str(measure(work)["path"])


# --- printing -------------------------------------------------------------------------------------


def row(
    name: str, cpu_s: float, peak: int, limit_s: float | None, limit_mb: float | None, note: str
) -> bool:
    """Prints a line of the table; whether the figures are within their bars."""
    fast = limit_s is None or cpu_s <= limit_s
    small = limit_mb is None or peak <= limit_mb * MB
    time_bar = "" if limit_s is None else f"{limit_s:g}"
    memory_bar = "" if limit_mb is None else f"{limit_mb:g}"
    missed = "" if fast and small else "MISSED. "
    print(
        f"| {name} | {cpu_s:.4f} | {time_bar} | {peak / MB:.0f} | {memory_bar} | {missed}{note} |",
        flush=True,
    )
    return fast and small


def show(figure: Figure, runs: int, bars: bool) -> bool:
    found = of_command(figure, runs) if figure.file else of_history(figure, runs)
    expected = not figure.load.violation
    note = f"{found['valid']}, {found['how']}".removesuffix(", ")
    if "engine" in found:
        per_operation = found["engine"] / found["operations"]
        note += f"; {found['before'] / MB:.0f} MB before, engine {per_operation:.0f} B/op"
    right = found["valid"] is expected
    limits = (figure.limit_s, figure.limit_mb) if bars else (None, None)
    kept = row(
        figure.name, found["cpu_s"], found["peak"], *limits, note if right else f"WRONG. {note}"
    )
    return kept and right


def show_etcd(runs: int) -> bool:
    """The shared logs of real etcd runs."""
    index = HISTORIES / "index.csv"
    if not index.exists():
        print("| etcd logs | | | | | not here: set SHALOTT_HISTORIES |")
        return True
    with index.open() as file:
        logs = [each for each in csv.DictReader(file) if "etcd_" in each["file"]]
    work = {
        "task": "files",
        "files": [str(HISTORIES / each["file"]) for each in logs],
        "expected": [each["expected"] == "true" for each in logs],
        "model": "cas-register",
    }
    found = measure(work, max(runs, 20))  # a process is short, and the machine has slow moments
    note = f"verdicts {'right' if found['valid'] else 'WRONG'}, {found['how']}"
    name = f"etcd logs, all {len(logs)}"
    in_time = row(name, found["cpu_s"], found["peak"], 0.010, None, note)
    row(f"{name}, whole process", found["whole_s"], found["peak"], None, None, "imports included")
    return bool(found["valid"]) and in_time


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a hundredth of the operations")
    parser.add_argument("--only", default="", help="figures whose names hold one of these words")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "checking")
    options = parser.parse_args()
    words = [word for word in options.only.split(",") if word]

    def wanted(name: str) -> bool:
        return not words or any(word in name for word in words)

    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print("| what | CPU s | bar | MB | bar | |\n| --- | --- | --- | --- | --- | --- |")
    good = True
    for figure in figures():
        if not wanted(figure.name):
            continue
        if options.quick:
            load = replace(figure.load, operations=max(3000, figure.load.operations // 100))
            figure = replace(figure, load=load)
        good &= show(figure, options.runs, bars=not options.quick)
    if wanted("etcd logs"):
        good &= show_etcd(options.runs)
    if wanted("scaling"):
        scaling.show(options.out, 100 if options.quick else 1)
    if wanted("porcupine"):
        good &= second_opinion.show(HISTORIES)
    if wanted("peers"):
        peers.show()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
