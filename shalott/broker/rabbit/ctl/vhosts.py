"""add_vhost and delete_vhost; set_permissions, clear_permissions and who has some.

Source: rabbitmqctl(8) of RabbitMQ 3.10, Virtual hosts and Access control.
"""

from __future__ import annotations

import msgspec

from shalott.broker.rabbit.ctl.session import (
    EXIT_DATA,
    EXIT_NO_USER,
    EXIT_UNAVAILABLE,
    EXIT_USAGE,
    CtlError,
    Session,
)


async def add_vhost(session: Session) -> None:
    """No user may do anything in it before set_permissions. Raises CtlError."""
    vhost = session.typed.arguments[0]
    session.inform(f'Adding vhost "{vhost}" ...')
    if any(one["name"] == vhost for one in await session.get("vhosts")):
        return  # RabbitMQ 3.10 is content with one that is there
    await session.ask("PUT", ("vhosts", vhost), query="permissions=none")


async def delete_vhost(session: Session) -> None:
    """With all that is in it. Raises CtlError."""
    vhost = session.typed.arguments[0]
    session.inform(f'Deleting vhost "{vhost}" ...')
    if all(one["name"] != vhost for one in await session.get("vhosts")):
        raise CtlError(EXIT_DATA, f"Virtual host '{vhost}' does not exist")
    await session.ask("DELETE", ("vhosts", vhost))


async def set_permissions(session: Session) -> None:
    """[-p vhost] user configure write read. Raises CtlError."""
    user, configure, write, read = session.typed.arguments
    vhost = session.typed.vhost
    session.inform(f'Setting permissions for user "{user}" in vhost "{vhost}" ...')
    await _require(session, user)
    body = {"configure": configure, "write": write, "read": read}
    await session.ask("PUT", ("permissions", vhost, user), body)


async def clear_permissions(session: Session) -> None:
    """[-p vhost] user. Content if there are none. Raises CtlError."""
    user, vhost = session.typed.arguments[0], session.typed.vhost
    session.inform(f'Clearing permissions for user "{user}" in vhost "{vhost}" ...')
    await _require(session, user)
    granted = await session.get("vhosts", vhost, "permissions")
    if any(one["user"] == user for one in granted):
        await session.ask("DELETE", ("permissions", vhost, user))


async def _require(session: Session, user: str) -> None:
    """Raises CtlError for a user or a vhost that is not there."""
    if all(one["name"] != user for one in await session.get("users")):
        raise CtlError(EXIT_NO_USER, f"Error:\nUser {user} does not exist")
    vhost = session.typed.vhost
    if all(one["name"] != vhost for one in await session.get("vhosts")):
        raise CtlError(EXIT_UNAVAILABLE, f"Error:\nVirtual host {vhost} does not exist")


# -- policies --------------------------------------------------------------------------------------

# set_policy, in both of its forms, and clear_policy; the same of operator policies.
#
# Source: rabbitmqctl(8) of RabbitMQ 3.10, Policies; of 3.0 and before the positional priority.

APPLY_TO = ("queues", "exchanges", "all")


async def set_policy(session: Session) -> None:
    """[-p vhost] [--priority n] [--apply-to queues|exchanges|all] name pattern definition, or
    [-p vhost] name pattern definition [priority]. Raises CtlError."""
    await _set(session, "policies", "policy")


async def set_operator_policy(session: Session) -> None:
    """As ``set_policy``."""
    await _set(session, "operator-policies", "operator policy override")


async def clear_policy(session: Session) -> None:
    """[-p vhost] name. Raises CtlError."""
    await _clear(session, "policies", "policy")


async def clear_operator_policy(session: Session) -> None:
    """As ``clear_policy``."""
    await _clear(session, "operator-policies", "operator policy")


async def _set(session: Session, path: str, what: str) -> None:
    typed = session.typed
    name, pattern, definition, *more = typed.arguments
    if more and typed.has("--priority"):
        raise CtlError(EXIT_USAGE, "Error: the priority is given twice")
    priority = _priority(more[0] if more else typed.options.get("--priority", "0"))
    apply_to = typed.options.get("--apply-to", "all")
    if apply_to not in APPLY_TO:
        raise CtlError(EXIT_UNAVAILABLE, f"Error:\napply-to must be one of {', '.join(APPLY_TO)}")
    session.inform(
        f'Setting {what} "{name}" for pattern "{pattern}" to "{definition}" with priority'
        f' "{priority}" for vhost "{typed.vhost}" ...'
    )
    body = {
        "pattern": pattern,
        "definition": _definition(definition),
        "priority": priority,
        "apply-to": apply_to,
    }
    missing = f"Virtual host '{typed.vhost}' does not exist"
    await session.ask("PUT", (path, typed.vhost, name), body, missing=missing)


async def _clear(session: Session, path: str, what: str) -> None:
    typed, name = session.typed, session.typed.arguments[0]
    session.inform(f'Clearing {what} "{name}" on vhost "{typed.vhost}" ...')
    await session.ask("DELETE", (path, typed.vhost, name), missing="Parameter does not exist")


def _priority(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise CtlError(
            EXIT_USAGE,
            f"Error (argument validation): Invalid options for this command:\n--priority : {text}",
        ) from None


def _definition(text: str) -> dict[str, object]:
    try:
        return msgspec.json.decode(text, type=dict[str, object])
    except msgspec.MsgspecError as error:
        text = f"Error:\nJSON decoding error. Reason: {error}"
        raise CtlError(EXIT_UNAVAILABLE, text) from None
