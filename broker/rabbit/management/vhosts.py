"""Virtual hosts. A node has the one that every broker starts with."""

from __future__ import annotations

from shalott.broker.base.http.messages import not_found

VHOSTS = ("/",)


def require_vhost(vhost: str) -> None:
    """Raises ApiError(404)."""
    if vhost not in VHOSTS:
        raise not_found()
