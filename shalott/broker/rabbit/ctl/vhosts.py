"""add_vhost and delete_vhost; set_permissions, clear_permissions and who has some.

Source: rabbitmqctl(8) of RabbitMQ 3.10, Virtual hosts and Access control.
"""

from __future__ import annotations

from shalott.broker.rabbit.ctl.arguments import CtlError
from shalott.broker.rabbit.ctl.session import (
    EXIT_DATA,
    EXIT_NO_USER,
    EXIT_UNAVAILABLE,
    Session,
)


async def add_vhost(session: Session) -> None:
    """Nobody may do anything in it before set_permissions. Raises CtlError."""
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
