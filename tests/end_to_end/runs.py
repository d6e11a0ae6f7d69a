"""`shalott` as its users run it: a process of its own, in an empty directory; and what it left."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from shalott.core.history import History
from shalott.core.plan import Plan
from shalott.harness.report.results import RunResults, read_results
from shalott.harness.run.store import RunDirectory

ROOT = Path(__file__).parents[2]
ENDS_S = 600.0  # no run of these tests lasts nearly as long, the building of an image included
POLL_S = 0.05
TROUBLE = re.compile(r"Traceback|\bERROR\b|\[error\]|\bcrash", re.IGNORECASE)
TROUBLES_MAX, LINES_AFTER, LAST_LINES = 3, 25, 5  # of a node's log, in a failed assertion


@dataclass(frozen=True)
class Done:
    """A command that has ended. ``pid`` is what its remains would name as their owner."""

    pid: int
    exit_code: int
    stdout: str
    stderr: str
    cwd: Path

    @property
    def complaints(self) -> list[str]:
        """What it said on standard error in its own name."""
        return [line for line in self.stderr.splitlines() if line.startswith("shalott: ")]

    @cached_property
    def directory(self) -> RunDirectory:
        """The run that it stored last."""
        return RunDirectory((self.cwd / "store" / "latest").resolve())

    @cached_property
    def results(self) -> RunResults:
        return read_results(self.directory.path / "results.json")

    @cached_property
    def plan(self) -> Plan:
        return self.directory.load_plan()

    @cached_property
    def history(self) -> History:
        return self.directory.load_history()

    def rows(self, f: str) -> list[dict[str, Any]]:
        """The history's rows of this f, their ``extra`` decoded."""
        rows = [row for row in self.history.ops.to_pylist() if row["f"] == f]
        return [{**row, "extra": json.loads(row["extra"] or "{}")} for row in rows]

    def counts(self, checker: str) -> Mapping[str, int | float]:
        (result,) = [each for each in self.results.results if each.checker == checker]
        return result.counts

    def __str__(self) -> str:
        """What a failed assertion should show."""
        run = (self.cwd / "store" / "latest").resolve()
        log = run / "log.txt"
        report = run / "report.html"
        parts = [
            f"exit code {self.exit_code}",
            self.stdout,
            self.stderr,
            log.read_text() if log.exists() else "",
            *last_words(run),
            f"the report: {report}" if report.exists() else f"no report in {run}",
        ]
        return "\n".join(parts)


def last_words(run: Path) -> Iterator[str]:
    """What the nodes' own logs say went wrong, and how each of them ends."""
    for path in sorted(run.glob("nodes/*/**/*")):
        if not path.is_file() or path.suffix not in (".log", ".txt"):
            continue
        lines = path.read_text(errors="replace").splitlines()
        wrong = [number for number, line in enumerate(lines) if TROUBLE.search(line)]
        near = {n for at in wrong[-TROUBLES_MAX:] for n in range(at, at + LINES_AFTER)}
        near |= set(range(len(lines) - LAST_LINES, len(lines)))
        shown = [lines[number] for number in sorted(near) if 0 <= number < len(lines)]
        if shown:
            yield f"--- {path.resolve()}"
            yield from shown


class Running:
    """A command that has not ended yet. Killed at the end of a ``with`` block if it still runs."""

    def __init__(
        self,
        arguments: Sequence[str],
        cwd: Path,
        *,
        environment: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
    ) -> None:
        cwd.mkdir(parents=True, exist_ok=True)
        self.cwd = cwd
        self._out = (cwd / "stdout.txt").open("w+")
        self._err = (cwd / "stderr.txt").open("w+")
        self.process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "shalott.harness.cli.main", *arguments],
            cwd=cwd,
            env={**os.environ, "PYTHONPATH": str(ROOT)} if environment is None else environment,
            stdin=subprocess.DEVNULL,
            stdout=self._out,
            stderr=self._err,
        )

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._out.close()
        self._err.close()

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait(self) -> Done:
        code = self.process.wait(ENDS_S)
        return Done(self.process.pid, code, self._said("stdout"), self._said("stderr"), self.cwd)

    def end(self, number: signal.Signals) -> Done:
        self.process.send_signal(number)
        return self.wait()

    def await_recorded(self, holds: Callable[[list[dict[str, Any]]], bool], what: str) -> None:
        """Until the recording of the run says so."""
        deadline = time.monotonic() + ENDS_S
        while time.monotonic() < deadline:
            if holds(self._recorded()):
                return
            ended = self.process.poll()
            assert ended is None, f"exit code {ended} before {what}:\n{self._said('stderr')}"
            time.sleep(POLL_S)
        raise AssertionError(f"never {what}:\n{self._said('stderr')}")

    def await_fault(self) -> None:
        """Until a fault is in force and proved, and clients have been served besides."""

        def in_force(records: list[dict[str, Any]]) -> bool:
            proofs = [json.loads(record.get("extra", "{}")) for record in records]
            proved = any(
                record["type"] == "ok" and proof.get("phase") == "effective"
                for record, proof in zip(records, proofs, strict=True)
            )
            return proved and sum(record["type"] == "ok" for record in records) > 100

        self.await_recorded(in_force, "a fault was in force")

    def _recorded(self) -> list[dict[str, Any]]:
        try:
            data = (self.cwd / "store" / "latest" / "history.jsonl").read_bytes()
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        return [json.loads(line) for line in whole.splitlines()]

    def _said(self, stream: str) -> str:
        return (self.cwd / f"{stream}.txt").read_text()


def shalott(
    arguments: Sequence[str],
    cwd: Path,
    *,
    environment: Mapping[str, str] | None = None,
    prefix: Sequence[str] = (),
) -> Done:
    """Run a command to its end."""
    with Running(arguments, cwd, environment=environment, prefix=prefix) as running:
        return running.wait()
