"""What a search shows while it lasts: a bar on a terminal, else a plain line every few seconds."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from shalott.harness.search.run_search import Tally, Watch

PLAIN_INTERVAL_S = 10.0
BAR_COLUMNS = 24


def tally_text(tally: Tally) -> Text:
    """Seeds, speed, findings, coverage."""
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(f"{tally.done:,}/{tally.wanted:,} seeds", style="bold")
    if tally.virtual_ns:
        text.append(f"  {tally.seeds_a_second:.1f}/s")
        text.append(f"  {tally.virtual_ns / 1e9:,.0f} virtual s", style="dim")
    elif tally.run_now:
        text.append(f"  {1 / tally.seeds_a_second:.0f} s a plan")
    if tally.classes:
        found = ", ".join(f"{kind} {count:,}" for kind, count in sorted(tally.classes.items()))
        text.append(f"  {found}", style="red")
    else:
        text.append("  no finding", style="green")
    if tally.unknown:
        text.append(f"  unknown {tally.unknown:,}", style="yellow")
    if tally.starved:
        text.append(f"  starved {tally.starved:,}", style="yellow")
    if tally.failed:
        text.append(f"  failed {tally.failed:,}", style="bold red")
    text.append(f"  events {len(tally.seen)} of {len(tally.wanted_events)}", style="cyan")
    if tally.repeated:
        text.append(f"  repeated {tally.repeated:,}", style="dim")
    return text


class PlainWatch:
    """Lines for a log."""

    def __init__(self, stream: TextIO, interval_s: float = PLAIN_INTERVAL_S) -> None:
        self._stream = stream
        self._interval_s = interval_s
        self._due_s = time.monotonic() + interval_s

    def show(self, tally: Tally) -> None:
        if time.monotonic() >= self._due_s:
            self._due_s = time.monotonic() + self._interval_s
            self.say(tally_text(tally).plain)

    def say(self, line: str) -> None:
        self._stream.write(f"{line}\n")
        self._stream.flush()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        return


class TerminalWatch:
    """A bar on standard error that leaves no trace; lines above it stay."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)

    def show(self, tally: Tally) -> None:
        bar = ProgressBar(total=tally.wanted, completed=tally.done, width=BAR_COLUMNS)
        line = Table.grid(padding=(0, 1))
        line.add_row(bar, tally_text(tally))
        self._live.update(line, refresh=True)

    def say(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def __enter__(self) -> Watch:
        self._live.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.__exit__(kind, error, trace)


def make_watch() -> PlainWatch | TerminalWatch:
    """A bar on a terminal."""
    return TerminalWatch() if sys.stderr.isatty() else PlainWatch(sys.stderr)
