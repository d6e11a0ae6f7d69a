"""set_policy, in both of its forms, and clear_policy.

Source: rabbitmqctl(8) of RabbitMQ 3.10, Policies; of 3.0 and before the positional priority.
"""

from __future__ import annotations

from typing import Any

import msgspec

from shalott.broker.rabbit.ctl.arguments import EXIT_USAGE, CtlError
from shalott.broker.rabbit.ctl.session import EXIT_UNAVAILABLE, Session

APPLY_TO = ("queues", "exchanges", "all")


async def set_policy(session: Session) -> None:
    """[-p vhost] [--priority n] [--apply-to queues|exchanges|all] name pattern definition, or
    [-p vhost] name pattern definition [priority]. Raises CtlError."""
    typed = session.typed
    name, pattern, definition, *more = typed.arguments
    if more and typed.has("--priority"):
        raise CtlError(EXIT_USAGE, "Error: the priority is given twice")
    priority = _priority(more[0] if more else typed.options.get("--priority", "0"))
    apply_to = typed.options.get("--apply-to", "all")
    if apply_to not in APPLY_TO:
        raise CtlError(EXIT_UNAVAILABLE, f"Error:\napply-to must be one of {', '.join(APPLY_TO)}")
    session.inform(
        f'Setting policy "{name}" for pattern "{pattern}" to "{definition}" with priority'
        f' "{priority}" for vhost "{typed.vhost}" ...'
    )
    body = {
        "pattern": pattern,
        "definition": _definition(definition),
        "priority": priority,
        "apply-to": apply_to,
    }
    missing = f"Virtual host '{typed.vhost}' does not exist"
    await session.ask("PUT", ("policies", typed.vhost, name), body, missing=missing)


async def clear_policy(session: Session) -> None:
    """[-p vhost] name. Raises CtlError."""
    typed, name = session.typed, session.typed.arguments[0]
    session.inform(f'Clearing policy "{name}" on vhost "{typed.vhost}" ...')
    await session.ask("DELETE", ("policies", typed.vhost, name), missing="Parameter does not exist")


def _priority(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise CtlError(
            EXIT_USAGE,
            f"Error (argument validation): Invalid options for this command:\n--priority : {text}",
        ) from None


def _definition(text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        text = f"Error:\nJSON decoding error. Reason: {error}"
        raise CtlError(EXIT_UNAVAILABLE, text) from None
