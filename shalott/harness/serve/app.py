"""The server and its paths. A view is a function of a request; it is shown as a page, and at the
same path below ``/api`` as JSON.

Views run in threads, since they read files; they change nothing. The server listens on one socket
and ends in order on Ctrl-C.

Data as pages: the templates, what they call, and the figures' words. Everything is escaped.
"""

from __future__ import annotations

import hashlib
import mimetypes
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, cached_property
from pathlib import Path
from threading import BoundedSemaphore

import jinja2
import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

import shalott.harness.report as report_package
from shalott.core.errors import UsageError
from shalott.harness.report.draw import bar_heights
from shalott.harness.run.store import REPORT
from shalott.harness.serve.archive import archive_name, zipped
from shalott.harness.serve.cached_table import Runs, RunsFile
from shalott.harness.serve.compare import compare
from shalott.harness.serve.evidence import evidence_link
from shalott.harness.serve.guard import (
    FILE_POLICY,
    Guard,
    is_loopback,
    machine_names,
    report_policy,
)
from shalott.harness.serve.history_view import history_page
from shalott.harness.serve.live_runs import Found, LiveRuns, follow
from shalott.harness.serve.nights import cell_history, list_nights, night_matrix
from shalott.harness.serve.node_files import search_files, text_window
from shalott.harness.serve.request import Query, Refused, StoreFiles, link, read_query
from shalott.harness.serve.run_view import plan_view, results_of, run_view
from shalott.harness.serve.runs_page import list_runs
from shalott.harness.serve.search_findings import list_findings
from shalott.harness.serve.told_nights import NightFiles, ToldNight

BLOCK_BYTES = 256 << 10
SEARCHES_MAX = 2  # at a time: each may read much
FOLLOWERS_MAX = 20
TEXT = "text/plain; charset=utf-8"
GRACE_S = 2  # for pages that follow a run, when the server ends


@dataclass
class ServerState:
    """What views read: one store. ``store_name``: the store as its user typed it, for commands."""

    store: Path
    store_name: str

    def __post_init__(self) -> None:
        self.places = StoreFiles(self.store)
        self.table = RunsFile(self.places.root)
        self.live = LiveRuns(self.places.root)
        self.nights = NightFiles(self.places)
        self.searches = BoundedSemaphore(SEARCHES_MAX)
        self.followers = 0

    def runs(self) -> Runs:
        return self.table.current()

    def told(self) -> Mapping[str, ToldNight]:
        return self.nights.current()

    def found(self) -> Found:
        return self.live.find(self.runs().places)

    def search(self, query: Query) -> object:
        if not self.searches.acquire(blocking=False):
            raise Refused(503, "Other searches are at work: try again in a few seconds.")
        try:
            return search_files(self.places, query)
        finally:
            self.searches.release()

    @cached_property
    def assets(self) -> dict[str, tuple[bytes, str, str]]:
        """Content, type and tag of each file of ours, by name: nothing else is served by name."""
        own = [*(HERE / "assets").iterdir()]
        style = Path(report_package.__path__[0]) / "templates" / "report.css"
        found = {}
        for path in (*own, style):
            data = path.read_bytes()
            kind = mimetypes.types_map.get(path.suffix, "application/octet-stream")
            tag = f'"{hashlib.sha256(data).hexdigest()[:20]}"'
            found[path.name] = (data, f"{kind}; charset=utf-8", tag)
        return found


View = Callable[[ServerState, Query], object]


def _list(state: ServerState, query: Query) -> object:
    return list_runs(state.runs(), query, state.found())


# path -> (template, view)
VIEWS: dict[str, tuple[str, View]] = {
    "/runs": ("runs.html.j2", _list),
    "/nights": ("nights.html.j2", lambda state, query: list_nights(state.runs(), state.told())),
    "/night": (
        "night.html.j2",
        lambda state, query: night_matrix(state.runs(), state.told(), query),
    ),
    "/cell": ("cell.html.j2", lambda state, query: cell_history(state.runs(), state.told(), query)),
    "/run": (
        "run.html.j2",
        lambda state, query: run_view(state.places, state.runs(), query, state.store_name),
    ),
    "/run/plan": ("plan.html.j2", lambda state, query: plan_view(state.places, query)),
    "/run/text": ("text.html.j2", lambda state, query: text_window(state.places, query)),
    "/run/search": ("search.html.j2", lambda state, query: state.search(query)),
    "/run/history": ("history.html.j2", lambda state, query: history_page(state.places, query)),
    "/run/live": (
        "live.html.j2",
        lambda state, query: run_view(state.places, state.runs(), query, state.store_name),
    ),
    "/findings": (
        "findings.html.j2",
        lambda state, query: list_findings(
            state.places, state.runs(), state.told(), state.store_name
        ),
    ),
    "/live": ("live_runs.html.j2", lambda state, query: state.found().live),
}


def build_app(store: Path, store_name: str, *, host: str, names: tuple[str, ...] = ()) -> Starlette:
    """The server of one store. ``host``: where it listens; ``names``: what else it is called."""
    state = ServerState(store, store_name)
    routes = [
        Route("/", _page(state, *VIEWS["/runs"])),
        Route("/compare", _comparison(state)),
        Route("/api/compare", _comparison(state, as_json=True)),
        Route("/run/raw", _raw(state)),
        Route("/run/report", _report(state)),
        Route("/run/zip", _zip(state)),
        Route("/run/evidence", _evidence(state)),
        Route("/api/run/follow", _follow(state)),
        Route("/assets/{name}", _asset(state)),
    ]
    for path, (template, view) in VIEWS.items():
        routes += [
            Route(path, _page(state, template, view)),
            Route(f"/api{path}", _json(state, view)),
        ]
    app = Starlette(
        routes=routes,
        middleware=[Middleware(Guard, host=host, names=names)],
        exception_handlers={Refused: _refused, HTTPException: _refused},
    )
    app.state.state = state
    return app


def read_ahead(app: Starlette) -> None:
    """Read the table, and make the first page once, so that the first request need not wait."""
    template, view = VIEWS["/runs"]
    state: ServerState = app.state.state
    render(template, view=view(state, Query()), asked=Query(), path="/")
    list_nights(state.runs(), state.told())


def _asked(request: Request) -> Query:
    return read_query(request.scope["query_string"].decode("latin-1"))


def _page(state: ServerState, template: str, view: View) -> Callable[[Request], Response]:
    def page(request: Request) -> Response:
        query = _asked(request)
        found = view(state, query)
        content = render(template, view=found, asked=query, path=request.url.path)
        return Response(content, media_type="text/html; charset=utf-8")

    return page


def _json(state: ServerState, view: View) -> Callable[[Request], Response]:
    def answer(request: Request) -> Response:
        return _encoded(view(state, _asked(request)))

    return answer


def _encoded(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def _comparison(state: ServerState, *, as_json: bool = False) -> Callable[[Request], Response]:
    def page(request: Request) -> Response:
        query = _asked(request)
        found = compare(state.places, state.runs(), query, draw=not as_json)
        if as_json:
            return _encoded(found.comparison)
        content = render("compare.html.j2", view=found, asked=query, path="/compare")
        return Response(content, media_type="text/html; charset=utf-8")

    return page


async def _refused(request: Request, error: Exception) -> Response:
    status, sentence = _reason(error)
    if request.url.path.startswith("/api/"):
        return _encoded({"error": sentence}, status)
    content = render("refused.html.j2", status=status, sentence=sentence, path="")
    return Response(content, status, media_type="text/html; charset=utf-8")


def _reason(error: Exception) -> tuple[int, str]:
    if isinstance(error, Refused):
        return error.status, error.sentence
    status = error.status_code if isinstance(error, HTTPException) else 500
    return status, "There is no such page." if status == 404 else "That can't be answered."


def _raw(state: ServerState) -> Callable[[Request], Response]:
    def raw(request: Request) -> Response:
        query = _asked(request)
        name = query.file_name("file")
        headers = {"Content-Security-Policy": FILE_POLICY}
        kind = TEXT
        if name.endswith((".parquet", ".gz", ".zip", ".bin", ".db")):
            kind = "application/octet-stream"
            headers["Content-Disposition"] = "attachment"
        return _sent(state, query, name, headers, kind)

    return raw


def _evidence(state: ServerState) -> Callable[[Request], Response]:
    """Leads from a finding to its messages, its fault, or its node's log at that second."""

    def evidence(request: Request) -> Response:
        query = _asked(request)
        results, _ = results_of(state.places, state.places.run(query.file_name("run")))
        return RedirectResponse(evidence_link(state.places, results, query), 302)

    return evidence


def _report(state: ServerState) -> Callable[[Request], Response]:
    def report(request: Request) -> Response:
        headers = {"Content-Security-Policy": report_policy(), "X-Frame-Options": "SAMEORIGIN"}
        return _sent(state, _asked(request), REPORT, headers, "text/html; charset=utf-8")

    return report


def _sent(
    state: ServerState, query: Query, name: str, headers: dict[str, str], kind: str
) -> Response:
    """A file of the run that is asked for, as long as it is now."""
    run = state.places.run(query.file_name("run"))
    kept = ExitStack()
    file = kept.enter_context(state.places.opened(run, name))
    size = file.seek(0, 2)
    file.seek(0)

    def blocks() -> Iterator[bytes]:
        left = size
        with kept:
            while left > 0 and (data := file.read(min(BLOCK_BYTES, left))):
                left -= len(data)
                yield data

    with_length = {**headers, "Content-Length": str(size)}
    return _Closing(blocks(), kept, headers=with_length, media_type=kind)


class _Closing(StreamingResponse):
    """What it read from is closed, also if nothing of it was read (HEAD, a client that left)."""

    def __init__(
        self,
        content: Iterator[bytes],
        kept: ExitStack,
        *,
        headers: Mapping[str, str],
        media_type: str,
    ) -> None:
        super().__init__(content, headers=headers, media_type=media_type)
        self._kept = kept

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._kept:
            await super().__call__(scope, receive, send)


def _zip(state: ServerState) -> Callable[[Request], Response]:
    def archive(request: Request) -> Response:
        run = state.places.run(_asked(request).file_name("run"))
        headers = {
            "Content-Disposition": f'attachment; filename="{archive_name(run)}.zip"',
            "Content-Security-Policy": FILE_POLICY,
        }
        return StreamingResponse(
            zipped(state.places, run), headers=headers, media_type="application/zip"
        )

    return archive


def _follow(state: ServerState) -> Callable[[Request], object]:
    """A live run as server-sent events, each a part (live_runs.py)."""

    async def events(request: Request) -> Response:
        run = state.places.run(_asked(request).file_name("run"))
        if state.followers >= FOLLOWERS_MAX:
            raise Refused(503, "Too many pages follow runs: close one.")

        async def parts() -> AsyncIterator[bytes]:
            state.followers += 1
            try:
                async for part in follow(state.places, run):
                    name = b"ended" if part.ended else b"part"
                    yield b"event: " + name + b"\ndata: " + msgspec.json.encode(part) + b"\n\n"
            finally:
                state.followers -= 1

        return StreamingResponse(parts(), media_type="text/event-stream")

    return events


def _asset(state: ServerState) -> Callable[[Request], Response]:
    def asset(request: Request) -> Response:
        found = state.assets.get(request.path_params["name"])
        if found is None:
            raise Refused(404, "There is no such file.")
        data, kind, tag = found
        headers = {"Cache-Control": "no-cache", "ETag": tag}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(data, media_type=kind, headers=headers)

    return asset


def serve(
    store: Path, host: str, port: int, names: tuple[str, ...], say: Callable[[str], None]
) -> None:
    """Serve the store until SIGINT or SIGTERM. Raises UsageError if it can't listen there."""
    listening = _listen(host, port)
    with listening:
        own = names if is_loopback(host) else (*names, *machine_names())
        app = build_app(store, str(store), host=host, names=own)
        read_ahead(app)
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            lifespan="off",
            timeout_graceful_shutdown=GRACE_S,
            h11_max_incomplete_event_size=32 << 10,
        )
        say(f"{store} is shown at {address_of(listening)} (Ctrl-C ends it)")
        try:
            uvicorn.Server(config).run(sockets=[listening])
        except KeyboardInterrupt:  # uvicorn raises it again when it has ended in order
            return


def _listen(host: str, port: int) -> socket.socket:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = found[0]
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise UsageError(f"--host {host}: {error.strerror}") from error
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(128)
    except OSError as error:
        listening.close()
        raise UsageError(
            f"cannot listen at {host}, port {port}: {error.strerror}; choose another --port"
        ) from error
    return listening


def address_of(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


HERE = Path(__file__).parent
_CLASSES = {"invalid": "invalid", "valid": "valid"}


def render(template: str, **values: object) -> bytes:
    """A page. ``values``: by the names in the template."""
    return environment().get_template(template).render(values).encode("utf-8", "replace")


@cache
def environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals |= {"link": link}
    made.filters |= {
        "when": when,
        "count": count,
        "size": size,
        "ms": milliseconds,
        "percent": percent,
        "kind": lambda verdict: _CLASSES.get(verdict, "unknown"),
        "bar_heights": bar_heights,
        "seconds": lambda ns: "" if ns is None else f"{ns / 1e9:.6f}",
    }
    return made


def when(wall_ns: int | None) -> str:
    """A wall time, in UTC; nothing for what is no time."""
    if not wall_ns or not 0 < wall_ns < 2**62:
        return "–"
    return f"{datetime.fromtimestamp(wall_ns / 1e9, UTC):%Y-%m-%d %H:%M:%S}"


def count(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def size(value: int) -> str:
    amount, units = float(value), ["B", "kB", "MB", "GB", "TB"]
    while amount >= 1000 and len(units) > 1:
        amount /= 1000
        units.pop(0)
    return f"{amount:.0f} {units[0]}" if units[0] == "B" else f"{amount:.1f} {units[0]}"


def milliseconds(value: float | None) -> str:
    if value is None or value != value:
        return "–"
    if value >= 10_000:
        return f"{value / 1000:,.1f} s"
    return f"{value:.0f} ms" if value >= 10 else f"{value:.2g} ms"


def percent(share: float) -> str:
    return (
        f"{100 * share:.0f} %" if share in (0, 1) or 0.1 <= share <= 0.9 else f"{100 * share:.1f} %"
    )
