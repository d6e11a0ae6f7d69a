"""Ours beside Porcupine (checkers/porcupine) on the same histories, in one run.

CPU seconds from columns (or files) to the verdict, of all threads, each in a process of its own;
loading the library is not in it, handing the history over is. Porcupine may take 20 seconds of the
clock and 2 GB of heap for each.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from benchmarks.histories import Load
from benchmarks.processes import measure
from shalott.checkers.porcupine.porcupine import library_path
from shalott.core.errors import ShalottError

LIMIT_S: Final = 20.0
DRAWN: Final = (
    ("register", Load(1_000, 5)),
    ("register", Load(10_000, 10)),
    ("cas-register", Load(1_000, 10)),
    ("cas-register", Load(10_000, 10)),
    ("cas-register", Load(10_000, 10, violation="stale")),
    ("cas-register", Load(1_000, 10, 0.01, "fresh")),
    ("fifo-queue", Load(100, 10)),
    ("fifo-queue", Load(1_000, 3)),
    ("set", Load(1_000, 5)),
    ("mutex", Load(1_000, 5)),
    ("log", Load(1_000, 5)),
)
RECORDED: Final = (("etcd logs", "etcd_", "cas-register"), ("kv logs", "/kv/", "key-value"))

Work = dict[str, Any]


def show(histories: Path) -> bool:
    """Prints the table; whether no verdict is wrong. ``histories`` has the recorded ones."""
    try:
        library_path(print)
    except ShalottError as missing:
        print(f"\nPorcupine is not timed: {missing}")
        return True
    print("\nCPU seconds and MB of the process\n\n| | ours | Porcupine | Porcupine / ours |")
    print("| --- | --- | --- | --- |")
    good = True
    for name, work, right in (*_drawn(), *_recorded(histories)):
        ours = measure({**work, "by": "auto", "time_limit_s": LIMIT_S}, 3)
        theirs = measure({**work, "by": "porcupine", "time_limit_s": LIMIT_S})
        is_decided = theirs["valid"] != "unknown" and not theirs.get("undecided")
        ratio = f"{theirs['cpu_s'] / ours['cpu_s']:.1f}" if is_decided else ""
        good &= ours["valid"] is right and (theirs["valid"] is right or not is_decided)
        cells = " | ".join(_cell(found, right) for found in (ours, theirs))
        print(f"| {name} | {cells} | {ratio} |", flush=True)
    return good


def _drawn() -> Iterator[tuple[str, Work, bool]]:
    for model, load in DRAWN:
        draw = {"task": "draw", "model": model, "load": asdict(load), "ending": "npz"}
        path = str(measure(draw)["path"])
        work = {"task": "history", "path": path, "model": model, "prefix": False}
        yield Path(path).stem, work, not load.violation


def _recorded(histories: Path) -> Iterator[tuple[str, Work, bool]]:
    """All of a kind at once: what is right is that every verdict is the published one."""
    index = histories / "index.csv"
    if not index.exists():
        print("| recorded logs | | not here: set SHALOTT_HISTORIES | |")
        return
    with index.open() as file:
        rows = list(csv.DictReader(file))
    for name, part, model in RECORDED:
        chosen = [row for row in rows if part in row["file"]]
        work = {
            "task": "files",
            "files": [str(histories / row["file"]) for row in chosen],
            "expected": [row["expected"] == "true" for row in chosen],
            "model": model,
        }
        yield f"{name}, all {len(chosen)}, read and checked", work, True


def _cell(found: Work, right: bool) -> str:
    figures = f"{found['cpu_s']:.4f} s, {found['peak'] / 1e6:.0f} MB"
    if undecided := found.get("undecided"):
        return f"{undecided} without a verdict ({figures})"
    if found["valid"] == "unknown":
        return f"no verdict: {found['how']} ({figures})"
    return figures if found["valid"] is right else f"WRONG ({figures})"
