"""The management page's files. They hold nothing of the node, so anybody may have them; what they
show they ask of the API, with the name and password that their reader gives.

The policy lets the page load and ask its own node only, and run no script but its files.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files

from shalott.broker.base.http_api import Request, Response

CONTENT_TYPES: Mapping[str, str] = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
}
NAMES = (
    *("index.html", "style.css", "app.js", "api.js", "dom.js", "overview.js", "cluster.js"),
    *("queues.js", "queue.js", "ring.js", "policies.js", "listings.js"),
)
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
        " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}

_FOLDER = files("shalott.broker.rabbit.management").joinpath("page")
# Read when the node starts: a node has no files but those of its disk.
CONTENTS: Mapping[str, bytes] = {name: _FOLDER.joinpath(name).read_bytes() for name in NAMES}


def find_page(request: Request) -> Response | None:
    """The file at / or at /page/NAME; None if the request is for something else."""
    if request.method not in ("GET", "HEAD"):
        return None
    match request.segments:
        case ("",) | ("index.html",):
            name = "index.html"
        case ("page", name) if name in CONTENTS:
            pass
        case _:
            return None
    content_type = CONTENT_TYPES[name.rpartition(".")[2]]
    return Response(200, CONTENTS[name], {**HEADERS, "Content-Type": content_type})
