"""Who may ask for what: the tags of users, and the vhosts that they may enter.

After rabbit_mgmt_util.erl (is_authorized and its variants). ``management`` sees its vhosts and its
own connections, ``policymaker`` sets policies and parameters in them, ``monitoring`` sees all,
``administrator`` may do all. A tool on the node's machine that knows the cluster's cookie is an
administrator too, as rabbitmqctl is.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Mapping, Sequence

from shalott.broker.base.http_api import ApiError, Request
from shalott.broker.rabbit.amqp.login import is_loopback
from shalott.broker.rabbit.management.backend import TOOL, ManagementBackend
from shalott.broker.rabbit.management.users import users_of
from shalott.broker.rabbit.metadata import permissions, vhosts
from shalott.broker.rabbit.metadata.records import UserRow
from shalott.broker.rabbit.metadata.users import ADMINISTRATOR

TAGS = ("management", "policymaker", "monitoring", ADMINISTRATOR)
READING = ("GET", "HEAD")

# By the path's first segment behind /api: the tag that reading needs, and that writing needs.
NEEDS: Mapping[str, tuple[str, str]] = {
    "users": (ADMINISTRATOR, ADMINISTRATOR),
    "permissions": (ADMINISTRATOR, ADMINISTRATOR),
    "topic-permissions": (ADMINISTRATOR, ADMINISTRATOR),
    "user-limits": (ADMINISTRATOR, ADMINISTRATOR),
    "definitions": (ADMINISTRATOR, ADMINISTRATOR),
    "vhosts": ("management", ADMINISTRATOR),
    "vhost-limits": ("management", ADMINISTRATOR),
    "global-parameters": ("policymaker", "policymaker"),
    "parameters": ("policymaker", "policymaker"),
    "policies": ("management", "policymaker"),
    "operator-policies": ("management", ADMINISTRATOR),
    "nodes": ("monitoring", ADMINISTRATOR),
    "cluster-name": ("management", ADMINISTRATOR),
    "reset": (ADMINISTRATOR, ADMINISTRATOR),
    "auth": ("monitoring", "monitoring"),
    "feature-flags": ("monitoring", ADMINISTRATOR),
    "shalott": ("monitoring", ADMINISTRATOR),
}
OTHERS = ("management", "management")
IN_VHOSTS = ("queues", "exchanges", "bindings", "policies", "operator-policies", "consumers")


def authenticate(backend: ManagementBackend, request: Request) -> UserRow:
    """The user. Raises ApiError(401)."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "basic":
        try:
            name, _, password = base64.b64decode(token, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            name = password = ""
        row = users_of(backend).authenticate(name, password)
        if row is not None:
            if name in backend.config.loopback_users and not _is_near(request):
                raise _refused("User can only log in via localhost")
            return row
    if scheme.lower() == "cookie":
        if hmac.compare_digest(token.encode(), backend.config.cookie.encode()):
            return UserRow(name=TOOL, tags=(ADMINISTRATOR,))
        raise ApiError(401, "not_authorised", "The cookie is another one")
    challenge = {"WWW-Authenticate": 'Basic realm="Shalott"'}
    raise ApiError(401, "not_authorised", "Login failed", challenge)


def _is_near(request: Request) -> bool:
    return not request.peer or is_loopback(request.peer)


def check(backend: ManagementBackend, user: UserRow, request: Request) -> None:
    """Raises ApiError(401)."""
    if not any(tag in TAGS for tag in user.tags):
        raise _refused("Not management user")
    if request.segments[0] == "metrics" and not sees_all(user):
        raise _refused("Not monitoring user")
    place = request.segments[1] if len(request.segments) > 1 else ""
    reading = request.method in READING
    need = NEEDS.get(place, OTHERS)[0 if reading else 1]
    if place == "vhosts" and reading and len(request.segments) > 3:
        need = ADMINISTRATOR if "permissions" in request.segments[3] else need
    if not _has(user, need):
        raise _refused(f"Not {need} user")
    if place in IN_VHOSTS and len(request.segments) > 2:
        _check_vhost(backend, user, request.segments[2], reading=reading)


def _check_vhost(backend: ManagementBackend, user: UserRow, vhost: str, *, reading: bool) -> None:
    if user.name == TOOL or not vhosts.exists(backend.metadata, vhost):
        return  # what is not there is told as such
    if reading and sees_all(user):
        return
    if permissions.find(backend.metadata, vhost, user.name) is None:
        raise _refused("User not authorised to access virtual host")


def _has(user: UserRow, need: str) -> bool:
    if ADMINISTRATOR in user.tags or need == "management":
        return True
    return need in user.tags


def sees_all(user: UserRow) -> bool:
    return ADMINISTRATOR in user.tags or "monitoring" in user.tags


def visible(backend: ManagementBackend, user: UserRow, shown: Sequence[object]) -> list[object]:
    """What of a list the user may see: its vhosts', and its own connections and channels."""

    def is_visible(each: object) -> bool:
        if not isinstance(each, dict):
            return True
        queue = each.get("queue")
        vhost = each.get("vhost", queue.get("vhost") if isinstance(queue, dict) else None)
        if "user" in each and each.get("type", "network") == "network" and "node" in each:
            return bool(each["user"] == user.name)
        if "cluster_state" in each:
            vhost = each["name"]
        return (
            not isinstance(vhost, str)
            or permissions.find(backend.metadata, vhost, user.name) is not None
        )

    return [each for each in shown if is_visible(each)]


def _refused(reason: str) -> ApiError:
    return ApiError(401, "not_authorised", reason)
