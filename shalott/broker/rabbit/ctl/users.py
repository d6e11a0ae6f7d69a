"""What verbs about users and limits do beyond one request: a password from stdin, one limit of
several."""

from __future__ import annotations

import dataclasses
import sys

import msgspec

from shalott.broker.rabbit.ctl.calls import (
    ADD_USER,
    CLEAR_TOPIC,
    CLEAR_TOPICS,
    USER_TERM,
    USERS,
    VHOST,
    require,
)
from shalott.broker.rabbit.ctl.session import (
    EXIT_DATA,
    CtlError,
    Session,
)


def _with_password(session: Session, banner: str) -> Session:
    """The last word; if it is left out, the first line of stdin. Raises CtlError."""
    if len(session.typed.arguments) > 1:
        return session
    session.inform(banner)
    session.inform("Password: ")
    password = "" if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")
    if not password:
        text = "Error:\nPassword is not provided via argument or stdin"
        raise CtlError(EXIT_DATA, text)
    arguments = (session.typed.arguments[0], password)
    quiet = {**session.typed.options, "--quiet": ""}
    typed = dataclasses.replace(session.typed, arguments=arguments, options=quiet)
    return dataclasses.replace(session, typed=typed)


async def add_user(session: Session) -> None:
    name = session.typed.arguments[0]
    await ADD_USER.run(_with_password(session, f'Adding user "{name}" ...'))


async def change_password(session: Session) -> None:
    name = session.typed.arguments[0]
    banner = f'Changing password for user "{name}" ...'
    await USERS["change_password"].run(_with_password(session, banner))


async def authenticate_user(session: Session) -> None:
    name, password = session.typed.arguments
    session.inform(f'Authenticating user "{name}" ...')
    body = {"user": name, "password": password}
    told = await session.ask("POST", ("shalott", "authenticate"), body)
    if told["reason"]:
        text = f'Error:\nError: failed to authenticate user "{name}"\n{told["reason"]}'
        raise CtlError(EXIT_DATA, text)
    session.answer("Success")


async def clear_user_limits(session: Session) -> None:
    name, limit = session.typed.arguments
    what = "all limits" if limit == "all" else f'"{limit}" limit'
    session.inform(f'Clearing {what} for user "{name}" ...')
    await require(session, USER_TERM, {"username": name})
    (user,) = [one for one in await session.get("users") if one["name"] == name]
    for each in user["limits"] if limit == "all" else [limit]:
        await session.ask("DELETE", ("user-limits", name, each))


async def clear_topic_permissions(session: Session) -> None:
    """Of one exchange, or of all."""
    one = len(session.typed.arguments) == 2
    await (CLEAR_TOPIC if one else CLEAR_TOPICS).run(session)


async def show_vhost_limits(session: Session) -> None:
    """Of one vhost, as JSON."""
    vhost = session.typed.vhost
    session.inform(f'Listing limits for vhost "{vhost}" ...')
    await require(session, VHOST, {"vhost": vhost})
    told = await session.get("vhost-limits", vhost)
    _show(session, told[0]["value"] if told else None)


async def show_user_limits(session: Session) -> None:
    """Of one user, as JSON."""
    name = session.typed.options.get("--user", "guest")
    session.inform(f'Listing limits for user "{name}" ...')
    await require(session, USER_TERM, {"username": name})
    told = await session.get("user-limits", name)
    _show(session, told[0]["value"] if told else {})


def _show(session: Session, limits: object) -> None:
    text = "" if limits is None else msgspec.json.encode(limits).decode()
    if session.typed.formatter == "json":
        told = {"node": session.node, "result": "ok", "value": text}
        text = msgspec.json.encode(told).decode()
    session.say([text])
