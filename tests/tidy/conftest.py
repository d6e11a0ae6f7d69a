"""Prints the files that are longer than wished: allowed, but worth a look."""

from __future__ import annotations

import pytest

from tests.tidy.shape import FILE_LINES_MAX, FILE_LINES_WISHED
from tests.tidy.sources import python_sources


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if terminalreporter.config.option.markexpr not in ("", "lint"):
        return  # reading the whole tree takes seconds
    long = {source.path: source.text.count("\n") for source in python_sources()}
    for path, lines in sorted(long.items(), key=lambda item: -item[1]):
        if FILE_LINES_WISHED < lines <= FILE_LINES_MAX:
            terminalreporter.write_line(
                f"tidy: {path} has {lines} lines (wished: {FILE_LINES_WISHED})"
            )
