"""What a run shows on the terminal: a progress line while it lasts, its verdict at its end.

The progress line tells the phase, the time, operations a second and faults in force.

On a terminal one line is redrawn four times a second; elsewhere a plain line is written at every
new phase and every few seconds, so that a CI log tells where a run is. Rates come from counters
that the recorder keeps anyway: watching costs the recording nothing. While no client works the line
says what is awaited instead: the step of a build, or what is missing for the cluster to be whole.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import shutil
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from shalott.checkers.checker import Result
from shalott.core.steps import steps_told
from shalott.harness.report.verdict_words import findings, headline, overall, summaries
from shalott.harness.run.run import Outcome
from shalott.harness.run.stage import Stage
from shalott.harness.run.startup_race import story_as_text as told_as_text
from shalott.harness.run.store import LOG, REPORT

REDRAW_S = 0.25
PLAIN_INTERVAL_S = 5.0
IDLE_INTERVAL_S = 10.0  # between lines of a phase without operations, where no terminal is
FIRST_WORD_S = 1.0  # what boots first builds: its first line should say so
ASK_S = 1.0  # between looks at what is missing
IDLE = ("boot", "heal", "settle", "stop")  # phases without operations of clients
RATE_WINDOW_S = 1.0
FINDINGS_MAX = 12
_COLOURS = {"ok": "cyan", "fail": "magenta", "info": "yellow"}


@dataclass(frozen=True, slots=True)
class Rates:
    """Operations a second since the last look."""

    ok: float
    fail: float
    info: float


class Meter:
    """Turns the recorder's counters into rates over about a second."""

    def __init__(self) -> None:
        self._now_s = asyncio.get_running_loop().time
        self._at_s = self._now_s()
        self._counts = {"ok": 0, "fail": 0, "info": 0}
        self._rates = Rates(0, 0, 0)

    def read(self, counts: dict[str, int]) -> Rates:
        now_s = self._now_s()
        passed_s = now_s - self._at_s
        if passed_s >= RATE_WINDOW_S:
            per_s = {name: (counts[name] - self._counts[name]) / passed_s for name in self._counts}
            self._rates = Rates(per_s["ok"], per_s["fail"], per_s["info"])
            self._at_s, self._counts = now_s, dict(counts)
        return self._rates


def progress_text(stage: Stage, rates: Rates, awaited: str = "") -> Text:
    """The line. ``awaited``: what the phase goes on for, or the step that is being taken."""
    elapsed_s = (stage.record.now_ns() - stage.phase_began_ns) / 1e9
    limit = f"/{stage.plan.time_limit_ms / 1000:g}" if stage.phase == "load" else ""
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(f"{stage.phase:<6}", style="bold")
    text.append(f" {elapsed_s:5.1f}{limit} s  ")
    if stage.phase in IDLE:
        text.append(awaited)
        return text
    for name, rate in (("ok", rates.ok), ("fail", rates.fail), ("info", rates.info)):
        text.append(f"{name} {rate:,.0f}/s ({stage.record.counts[name]:,})  ", _COLOURS[name])
    faults = stage.nemesis.in_force
    if faults:
        text.append("faults: " + ", ".join(faults), style="red")
    elif stage.phase == "load":
        text.append("no fault in force", style="dim")
    return text


class Awaited:
    """What a phase without operations goes on for: the last step told, or what is missing.

    The nodes are asked, as the harness asks them anyway, and no more often than ``interval_s``.
    """

    def __init__(self, stage: Stage, interval_s: float) -> None:
        self._stage = stage
        self._interval_s = interval_s
        self._step = ""
        self._missing = ""
        self.changed = False  # a step was told since the last look

    def take_step(self, sentence: str) -> None:
        self._step, self.changed = sentence, True

    @property
    def text(self) -> str:
        self.changed = False
        if self._stage.phase == "boot" and not self._stage.started:
            return self._step or "starting the nodes"
        asks = self._stage.phase in ("boot", "settle")
        return f"awaiting: {self._missing}" if asks and self._missing else ""

    async def keep_asking(self) -> None:
        """Until cancelled."""
        while True:
            stage = self._stage
            asks = stage.phase == "settle" or (stage.phase == "boot" and stage.started)
            self._missing = await stage.missing() if asks else ""
            await asyncio.sleep(self._interval_s if asks else REDRAW_S)


@contextlib.asynccontextmanager
async def _awaited(stage: Stage, interval_s: float) -> AsyncIterator[Awaited]:
    awaited = Awaited(stage, interval_s)
    asking = asyncio.create_task(awaited.keep_asking())
    try:
        with steps_told(awaited.take_step):
            yield awaited
    finally:
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


async def watch_terminal(stage: Stage) -> None:
    """One line on standard error, redrawn until cancelled; it leaves no trace."""
    meter = Meter()
    console = Console(stderr=True)
    async with _awaited(stage, ASK_S) as awaited:
        with Live(console=console, auto_refresh=False, transient=True) as live:
            while True:
                rates = meter.read(stage.record.counts)
                live.update(progress_text(stage, rates, awaited.text), refresh=True)
                await asyncio.sleep(REDRAW_S)


async def watch_plainly(stage: Stage, stream: TextIO, interval_s: float = PLAIN_INTERVAL_S) -> None:
    """A line at every new phase and step, and every ``interval_s``; in phases without operations
    every ``IDLE_INTERVAL_S``, with what is awaited."""
    meter = Meter()
    phase, due_s = "", 0.0
    first_s = asyncio.get_running_loop().time() + FIRST_WORD_S
    async with _awaited(stage, ASK_S) as awaited:
        while True:
            now_s = asyncio.get_running_loop().time()
            if stage.phase == "boot" and not awaited.changed and now_s < first_s:
                await asyncio.sleep(REDRAW_S)
                continue
            rates = meter.read(stage.record.counts)
            if stage.phase != phase or awaited.changed or now_s >= due_s:
                phase = stage.phase
                due_s = now_s + (IDLE_INTERVAL_S if phase in IDLE else interval_s)
                text = progress_text(stage, rates, awaited.text)
                stream.write(f"{text.plain.rstrip()}\n")
                stream.flush()
            await asyncio.sleep(REDRAW_S)


# -- its end --------------------------------------------------------------------------------------


def tell_outcome(outcome: Outcome, command: str) -> None:
    """The last lines of a run."""
    for note in outcome.notes:
        typer.echo(note)
    tell_verdict(outcome.results)
    if outcome.story is not None:
        typer.echo(told_as_text(outcome.story))
    if outcome.failures:
        more = len(outcome.failures) - 1
        rest = f" (and {more} more, see {outcome.directory.path / LOG})" if more else ""
        sentence = f"the harness failed, which is no verdict on the broker: {outcome.failures[0]}"
        typer.secho(f"shalott: {sentence}{rest}", err=True, fg="red")
    if (outcome.directory.path / REPORT).exists():
        typer.echo(f"Report: {outcome.directory.path / REPORT}")
    else:
        typer.echo(f"What there is: {outcome.directory.path}")
    typer.echo(f"Repeat: {pasted(command)}")


def pasted(command: str) -> str:
    """A command of ours as it can be pasted into this shell: with the program's whole path where
    its directory is not on PATH."""
    program = Path(sys.argv[0])
    if program.name != "shalott" or shutil.which("shalott") or not program.is_file():
        return command
    return shlex.quote(str(program.absolute())) + command.removeprefix("shalott")


def tell_verdict(results: Sequence[Result]) -> None:
    valid = overall(results)
    colour = {True: "green", False: "red"}.get(valid, "yellow") if isinstance(valid, bool) else None
    typer.secho(headline(results), fg=colour or "yellow", bold=True)
    lines = [f"  {checker}: {sentence}" for _, checker, sentence in findings(results)]
    for line in dict.fromkeys(lines[:FINDINGS_MAX]):
        typer.echo(line)
    if len(lines) > FINDINGS_MAX:
        typer.echo(f"  and {len(lines) - FINDINGS_MAX} more in the report")
    for summary in summaries(results):
        typer.echo(summary)
