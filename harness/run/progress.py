"""The live progress line: phase, time, operations a second, faults in force.

On a terminal one line is redrawn four times a second; elsewhere a plain line is written at every
new phase and every few seconds, so that a CI log tells where a run is. Rates come from counters
that the recorder keeps anyway: watching costs the recording nothing.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from shalott.harness.run.stage import Stage

REDRAW_S = 0.25
PLAIN_INTERVAL_S = 5.0
RATE_WINDOW_S = 1.0
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


def progress_text(stage: Stage, rates: Rates) -> Text:
    """The line."""
    elapsed_s = (stage.record.now_ns() - stage.phase_began_ns) / 1e9
    limit = f"/{stage.plan.time_limit_ms / 1000:g}" if stage.phase == "load" else ""
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(f"{stage.phase:<6}", style="bold")
    text.append(f" {elapsed_s:5.1f}{limit} s  ")
    for name, rate in (("ok", rates.ok), ("fail", rates.fail), ("info", rates.info)):
        text.append(f"{name} {rate:,.0f}/s ({stage.record.counts[name]:,})  ", _COLOURS[name])
    faults = stage.nemesis.in_force
    if faults:
        text.append("faults: " + ", ".join(faults), style="red")
    elif stage.phase == "load":
        text.append("no fault in force", style="dim")
    return text


async def watch_terminal(stage: Stage) -> None:
    """One line on standard error, redrawn until cancelled; it leaves no trace."""
    meter = Meter()
    console = Console(stderr=True)
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while True:
            live.update(progress_text(stage, meter.read(stage.record.counts)), refresh=True)
            await asyncio.sleep(REDRAW_S)


async def watch_plainly(stage: Stage, stream: TextIO, interval_s: float = PLAIN_INTERVAL_S) -> None:
    """A line at every new phase, and every ``interval_s``."""
    meter = Meter()
    phase, due_s = "", 0.0
    while True:
        now_s = asyncio.get_running_loop().time()
        rates = meter.read(stage.record.counts)
        if stage.phase != phase or now_s >= due_s:
            phase, due_s = stage.phase, now_s + interval_s
            stream.write(f"{progress_text(stage, rates).plain.rstrip()}\n")
            stream.flush()
        await asyncio.sleep(REDRAW_S)
