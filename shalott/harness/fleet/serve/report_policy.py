"""The policy under which a run's report.html is shown.

It is our own page, but it holds brokers' text. So it is shown in a sandbox of its own origin, from
which the server can't be asked anything, and of scripts only those run that this version puts into
reports, by their digests: whatever stands in a report besides runs nowhere. A report of another
version is shown without its scripts, which it does not need; `shalott analyze` writes it anew.
"""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from pathlib import Path

import shalott.harness.report as report_package
from shalott.harness.report.linearizability import timeline_assets

_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)


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
