"""The same histories checked by other linearizability checkers, if they are installed.

Porcupine (https://github.com/anishathalye/porcupine): `go` must be on the path and fetch or have
the module; benchmarks/porcupine holds the little program that feeds it. Knossos
(https://github.com/jepsen-io/knossos): `java`, and its classpath, Clojure's included, in
KNOSSOS_CLASSPATH; benchmarks/knossos feeds it. Each run may take 60 CPU seconds; what it printed is
compared with what is right.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from benchmarks.histories import Load
from benchmarks.processes import ROOT, measure, run

LIMIT_S: Final = 60.0
WORK: Final = (
    ("register", Load(1_000, 5)),
    ("cas-register", Load(1_000, 10)),
    ("cas-register", Load(10_000, 10)),
    ("cas-register", Load(10_000, 10, violation="stale")),
    ("cas-register", Load(1_000, 10, 0.01, "fresh")),
    ("fifo-queue", Load(100, 10)),
    ("fifo-queue", Load(1_000, 5)),
)


@dataclass(frozen=True, slots=True)
class Peer:
    """A checker: a command that is given a file and a model, and prints true, false, unknown."""

    name: str
    command: tuple[str, ...]
    exported: bool = False  # it is given what `shalott export` makes of the file


def installed() -> Iterator[Peer]:
    go, porcupine = shutil.which("go"), ROOT / "benchmarks" / "porcupine"
    if go:
        binary = ROOT / "build" / "porcupine-check"
        built = run([go, "build", "-mod=mod", "-o", str(binary), "."], cwd=porcupine)
        if built.exit == 0:
            yield Peer("Porcupine", (str(binary),))
        else:
            print(f"go is here, but can't build Porcupine: {built.errors.strip()[-200:]}")
    java, classpath = shutil.which("java"), os.environ.get("KNOSSOS_CLASSPATH")
    if java and classpath:
        script = str(ROOT / "benchmarks" / "knossos" / "check.clj")
        command = (java, "-Xmx3g", "-cp", classpath, "clojure.main", script)
        yield Peer("Knossos", command, exported=True)


def ours() -> Peer:
    return Peer("shalott check", (sys.executable, "-m", "shalott.harness.cli.main", "check"))


def show() -> None:
    """A table of all that are here; whole processes, start-up included."""
    peers = list(installed())
    if not peers:
        print("\nno peer is installed: neither Porcupine (go) nor Knossos (KNOSSOS_CLASSPATH)")
        return
    names = ["shalott check", *(peer.name for peer in peers)]
    print(f"\nCPU seconds and MB of whole processes\n\n| | {' | '.join(names)} |")
    print(f"| --- |{' --- |' * len(names)}")
    for model, load in WORK:
        work = {"task": "draw", "model": model, "load": asdict(load), "ending": "edn"}
        path = str(measure(work)["path"])
        cells = [_cell([*ours().command, path, "--model", model], not load.violation)]
        for peer in peers:
            file = _exported(path) if peer.exported else path
            cells.append(_cell([*peer.command, file, model], not load.violation))
        print(f"| {Path(path).stem} | {' | '.join(cells)} |", flush=True)


def _exported(path: str) -> str:
    """The same history without what Knossos' models do not know: queues that are found empty."""
    out = f"{path}.exported"
    done = run([sys.executable, "-m", "shalott.harness.cli.main", "export", path, "--out", out])
    if done.exit != 0:
        raise RuntimeError(f"{path} can't be exported: {done.errors}")
    return out


def _cell(command: list[str], right: bool) -> str:
    ran = run(command, LIMIT_S)
    said = ran.output.strip().lower()
    is_valid, is_invalid = said.endswith("true"), said.endswith("false")
    if "check" in command:
        is_valid, is_invalid = ran.exit == 0, ran.exit == 1
    figures = f"{ran.cpu_s:.2f} s, {ran.peak / 1e6:.0f} MB"
    if not (is_valid or is_invalid):
        return f"no verdict ({figures})"
    return figures if is_valid is right else f"WRONG ({figures})"
