"""``shalott serve``: a page over a store."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from shalott.core.errors import UsageError

NEEDED = ("starlette", "uvicorn")
PORT_MAX = 65535


def add_commands(app: typer.Typer) -> None:
    app.command()(serve)


def serve(
    store: Annotated[Path, typer.Argument(help="Where runs are kept.")] = Path("store"),
    host: Annotated[str, typer.Option(help="Where to listen; others see it then.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0: any that is free.")] = 8017,
    name: Annotated[
        list[str] | None, typer.Option("--name", help="A host name that it is called by.")
    ] = None,
) -> None:
    """Show a store of runs as web pages, read-only: nights, runs, findings, live runs."""
    if not store.is_dir():
        raise UsageError(f"there is no store {store}: run `shalott test` first, or name its place")
    if not 0 <= port <= PORT_MAX:
        raise UsageError(f"--port {port}: give 0 to {PORT_MAX}")
    missing = [each for each in NEEDED if find_spec(each) is None]
    if missing:
        raise UsageError(
            f"`shalott serve` needs {' and '.join(missing)}: pip install 'shalott[serve]'"
        )
    from shalott.harness.serve.app import serve as serve_store  # needs the extra libraries

    serve_store(store, host, port, tuple(name or ()), typer.echo)
