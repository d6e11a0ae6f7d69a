"""The checks before every request, and the policies that go with every answer.

Only GET and HEAD are answered. A request must name a host that this server may be called by: else a
foreign site's page, whose name is made to lead to this machine (DNS rebinding), could read the
store in the visitor's browser. Every answer says that the browser must take it for what it is, run
no script but the server's own, and load nothing from elsewhere.

A run's report.html is our own page, but it holds brokers' text. So it is shown in a sandbox of its
own origin, from which the server can't be asked anything, and of scripts only those run that this
version puts into reports, by their digests. A report of another version is shown without its
scripts, which it does not need; `shalott analyze` writes it anew.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import re
import socket
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import shalott.harness.report as report_package
from shalott.harness.report.shown_anomalies import timeline_assets

PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; frame-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
FILE_POLICY = "sandbox; default-src 'none'; frame-ancestors 'none'"
ALWAYS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Content-Security-Policy": PAGE_POLICY,
    "Cache-Control": "no-store",
}
QUERY_MAX = 8000
_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)


class Guard:
    """The middleware. ``names``: hosts that it may be called by, besides those of ``is_own``."""

    def __init__(self, app: ASGIApp, host: str, names: Iterable[str] = ()) -> None:
        self._app = app
        self._loopback = is_loopback(host)
        self._names = frozenset(name.lower().rstrip(".") for name in (host, *names))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in ALWAYS.items():
                    headers.setdefault(name, value)
            await send(message)

        refusal = self._refusal(scope)
        app = self._app if refusal is None else refusal
        await app(scope, receive, send_guarded)

    def _refusal(self, scope: Scope) -> ASGIApp | None:
        headers = Headers(scope=scope)
        if not self.is_own(headers.getlist("host")):
            return _told(421, "This server is not called that: use the address that it printed.")
        if scope["method"] not in ("GET", "HEAD"):
            return _told(405, "Nothing can be changed here.", {"Allow": "GET, HEAD"})
        if len(scope.get("query_string", b"")) > QUERY_MAX:
            return _told(414, "That is too long a question.")
        return None

    def is_own(self, hosts: list[str]) -> bool:
        """Whether the one Host header names this server."""
        if len(hosts) != 1:
            return False
        name = host_name(hosts[0])
        if name is None:
            return False
        if name in self._names or name == "localhost":
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        # A number can't be made to lead elsewhere. On loopback only its own ones make sense.
        return address.is_loopback or not self._loopback


def host_name(header: str) -> str | None:
    """The host of a Host header, lower case, without its port and brackets; None if it is none."""
    text = header.strip().lower()
    if text.startswith("["):
        name, closed, port = text[1:].partition("]")
        if not closed or (port and not _is_port(port)):
            return None
        return name if _is_six(name) else None
    name, colon, port = text.partition(":")
    if colon and not _is_port(f":{port}"):
        return None
    name = name.rstrip(".")
    plain = name.replace("-", "").replace(".", "").replace("_", "")
    return name if plain.isascii() and plain.isalnum() else None


def _is_port(text: str) -> bool:
    return text[0] == ":" and text[1:].isascii() and text[1:].isdigit() and len(text) <= 6


def _is_six(name: str) -> bool:
    try:
        ipaddress.IPv6Address(name)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def machine_names() -> tuple[str, ...]:
    """What this machine is called, for a server that listens to others."""
    return tuple(dict.fromkeys((socket.gethostname(), socket.getfqdn())))


def _told(status: int, sentence: str, headers: dict[str, str] | None = None) -> ASGIApp:
    return PlainTextResponse(f"{sentence}\n", status, headers=headers)


@cache
def report_policy() -> str:
    sources = " ".join(f"'sha256-{_digest(text)}'" for text in known_scripts())
    return (
        f"sandbox allow-scripts; default-src 'none'; script-src {sources}; "
        "style-src 'unsafe-inline'; img-src data:; form-action 'none'; base-uri 'none'; "
        "frame-ancestors 'self'"
    )


def known_scripts() -> tuple[str, ...]:
    """The texts of the script elements of a report, as its template puts them."""
    place = Path(report_package.__path__[0]) / "templates" / "report.js"
    own = place.read_text(encoding="utf-8")
    return (f"\n{own}\n", *_SCRIPT.findall(str(timeline_assets())))


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
