"""Call: a verb that is one request of the management API, as data: what it says, what it asks, and
what must be there before.

Texts and exit codes are those of rabbitmqctl 3.10, as it printed them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

from shalott.broker.rabbit.ctl.session import (
    EXIT_DATA,
    EXIT_NO_USER,
    EXIT_SOFTWARE,
    EXIT_UNAVAILABLE,
    CtlError,
    Session,
    bad,
    invalid,
)

Words = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Need:
    """``kind``: below /api; ``word``: whose value one of them must be called, or with ``absent``
    none."""

    kind: str
    word: str
    exit_code: int
    text: str
    absent: bool = False


USER = Need("users", "username", EXIT_NO_USER, 'Error:\nUser "{username}" does not exist')
NO_USER = Need(
    "users", "username", EXIT_SOFTWARE, 'Error:\nUser "{username}" already exists', absent=True
)
USER_PLAIN = Need("users", "username", EXIT_NO_USER, "Error:\nUser {username} does not exist")
USER_TERM = Need("users", "username", EXIT_UNAVAILABLE, 'Error:\n{{:no_such_user, "{username}"}}')
VHOST = Need("vhosts", "vhost", EXIT_DATA, "Virtual host '{vhost}' does not exist")
VHOST_PLAIN = Need(
    "vhosts", "vhost", EXIT_UNAVAILABLE, "Error:\nVirtual host {vhost} does not exist"
)
VHOST_QUOTED = Need("vhosts", "vhost", EXIT_DATA, 'Error:\nVirtual host "{vhost}" does not exist')
NO_PARAMETER = "Parameter does not exist"


@dataclass(frozen=True, slots=True)
class Call:
    """``names``: of the words behind the verb; a last one with * takes all that follow. They, the
    vhost and the node stand in braces in texts and path. ``optional``: what a word is that is left
    out. ``quiet``: what is not there is no failure."""

    banner: str
    method: str
    path: tuple[str, ...]
    names: tuple[str, ...] = ()
    optional: Mapping[str, str] | None = None
    body: Callable[[Words], object] | None = None
    query: str = ""
    needs: tuple[Need, ...] = ()
    missing: str = ""
    done: str = ""
    quiet: bool = False

    def words(self, session: Session) -> dict[str, str]:
        typed = session.typed
        words = {"node": session.node, "vhost": typed.vhost, **(self.optional or {})}
        arguments = list(typed.arguments)
        for name in self.names:
            if name.endswith("*"):
                words[name[:-1]] = ", ".join(arguments)
            elif arguments:
                words[name] = arguments.pop(0)
        return words

    async def run(self, session: Session) -> None:
        """Raises CtlError, Invalid."""
        words = self.words(session)
        session.inform(self.banner.format(**words))
        for need in self.needs:
            await require(session, need, words)
        body = None if self.body is None else self.body(words)
        path = tuple(part.format(**words) for part in self.path)
        query = self.query.format(**words)
        try:
            await session.ask(self.method, path, body, query=query, missing=self.missing)
        except CtlError as error:
            if not self.quiet or error.text != f"Error:\n{self.missing}":
                raise
        if self.done:
            session.inform(self.done.format(**words))


async def require(session: Session, need: Need, words: Words) -> None:
    """Raises CtlError."""
    names = [one["name"] for one in await session.get(need.kind)]
    if (words[need.word] in names) == need.absent:
        raise CtlError(need.exit_code, need.text.format(**words))


def from_json(text: str) -> object:
    """Raises CtlError."""
    try:
        return msgspec.json.decode(text)
    except msgspec.MsgspecError:
        text = "Error:\nJSON decoding error. Reason: badarg"
        raise CtlError(EXIT_UNAVAILABLE, text) from None


def _object(text: str) -> dict[str, object]:
    """Raises CtlError."""
    told = from_json(text)
    if not isinstance(told, dict):
        raise CtlError(EXIT_UNAVAILABLE, "Error:\nValidation failed\n\nit should be an object\n")
    return told


# -- users, permissions, limits --------------------------------------------------------------------


def check_name(name: str) -> None:
    """Raises Invalid."""
    if not name:
        raise bad("user cannot be an empty string")


def _tags(words: Words) -> list[str]:
    return [tag for tag in words["tags"].split(", ") if tag]


_OWN_USER = ("shalott", "users", "{username}")
USERS: Mapping[str, Call] = {
    "change_password": Call(
        'Changing password for user "{username}" ...',
        *("PUT", _OWN_USER, ("username", "password")),
        body=lambda words: {"password": words["password"]},
        needs=(USER,),
    ),
    "clear_password": Call(
        'Clearing password for user "{username}" ...',
        *("PUT", _OWN_USER, ("username",)),
        body=lambda words: {"password": ""},
        needs=(USER,),
    ),
    "set_user_tags": Call(
        'Setting tags for user "{username}" to [{tags}] ...',
        *("PUT", _OWN_USER, ("username", "tags*")),
        body=lambda words: {"tags": _tags(words)},
        needs=(USER,),
    ),
    "delete_user": Call(
        'Deleting user "{username}" ...',
        *("DELETE", ("users", "{username}"), ("username",)),
        needs=(USER,),
    ),
    "set_user_limits": Call(
        'Setting user limits to "{definition}" for user "{username}" ...',
        *("PUT", _OWN_USER, ("username", "definition")),
        body=lambda words: {"limits": _object(words["definition"])},
        needs=(USER_TERM,),
    ),
    "set_permissions": Call(
        'Setting permissions for user "{username}" in vhost "{vhost}" ...',
        *("PUT", ("permissions", "{vhost}", "{username}")),
        ("username", "configure", "write", "read"),
        body=lambda words: {key: words[key] for key in ("configure", "write", "read")},
        needs=(USER_PLAIN, VHOST_PLAIN),
    ),
    "clear_permissions": Call(
        'Clearing permissions for user "{username}" in vhost "{vhost}" ...',
        *("DELETE", ("permissions", "{vhost}", "{username}"), ("username",)),
        needs=(USER_PLAIN, VHOST_PLAIN),
        missing="none",
        quiet=True,
    ),
    "set_topic_permissions": Call(
        'Setting topic permissions on "{exchange}" for user "{username}" in vhost "{vhost}" ...',
        *("PUT", ("topic-permissions", "{vhost}", "{username}")),
        ("username", "exchange", "write", "read"),
        body=lambda words: {key: words[key] for key in ("exchange", "write", "read")},
        needs=(USER_PLAIN, VHOST_PLAIN),
    ),
}
CLEAR_TOPICS = Call(
    'Clearing topic permissions for user "{username}" in vhost "{vhost}" ...',
    *("DELETE", ("topic-permissions", "{vhost}", "{username}"), ("username",)),
    needs=(USER_PLAIN, VHOST_PLAIN),
)
CLEAR_TOPIC = Call(
    'Clearing topic permissions on "{exchange}" for user "{username}" in vhost "{vhost}" ...',
    *("DELETE", ("topic-permissions", "{vhost}", "{username}"), ("username", "exchange")),
    query="exchange={exchange}",
    needs=(USER_PLAIN, VHOST_PLAIN),
)
ADD_USER = Call(
    'Adding user "{username}" ...',
    *("PUT", ("users", "{username}"), ("username", "password")),
    body=lambda words: {"password": words["password"], "tags": ""},
    needs=(NO_USER,),
    done=(
        "Done. Don't forget to grant the user permissions to some virtual hosts! See 'rabbitmqctl"
        " help set_permissions' to learn more."
    ),
)


# -- vhosts, parameters, policies ------------------------------------------------------------------


def _vhost_body(session: Session) -> dict[str, object]:
    options = session.typed.options
    return {key: options[f"--{key}"] for key in ("description", "tags") if f"--{key}" in options}


async def add_vhost(session: Session) -> None:
    """No user may do anything in it before set_permissions; RabbitMQ 3.10 is content with one that
    is there. Raises CtlError."""
    vhost = session.typed.arguments[0]
    session.inform(f'Adding vhost "{vhost}" ...')
    kind = session.typed.options.get("--default-queue-type", "classic")
    if kind != "classic":
        raise CtlError(EXIT_UNAVAILABLE, f"Error:\nthere are no queues of the type {kind} here")
    await session.ask("PUT", ("vhosts", vhost), _vhost_body(session), query="permissions=none")


_LIMITS = ("parameters", "vhost-limits", "{vhost}", "limits")
_PARAMETER = ("parameters", "{component}", "{vhost}", "{name}")
VHOSTS: Mapping[str, Call] = {
    "delete_vhost": Call(
        'Deleting vhost "{vhost}" ...',
        *("DELETE", ("vhosts", "{vhost}"), ("vhost",)),
        needs=(VHOST,),
    ),
    "set_vhost_tags": Call(
        'Setting tags for virtual host "{vhost}" to [{tags}] ...',
        *("PUT", ("vhosts", "{vhost}"), ("vhost", "tags*")),
        body=lambda words: {"tags": _tags(words)},
        needs=(VHOST_QUOTED,),
    ),
    "set_vhost_limits": Call(
        'Setting vhost limits to "{definition}" for vhost "{vhost}" ...',
        *("PUT", _LIMITS, ("definition",)),
        body=lambda words: {"value": _object(words["definition"])},
        needs=(VHOST,),
    ),
    "clear_vhost_limits": Call(
        'Clearing vhost "{vhost}" limits ...', "DELETE", _LIMITS, missing=NO_PARAMETER
    ),
    "set_parameter": Call(
        'Setting runtime parameter "{name}" for component "{component}" to "{value}" in vhost'
        ' "{vhost}" ...',
        *("PUT", _PARAMETER, ("component", "name", "value")),
        body=lambda words: {"value": from_json(words["value"])},
        needs=(VHOST,),
    ),
    "clear_parameter": Call(
        'Clearing runtime parameter "{name}" for component "{component}" on vhost "{vhost}" ...',
        *("DELETE", _PARAMETER, ("component", "name")),
        missing=NO_PARAMETER,
    ),
    "set_global_parameter": Call(
        'Setting global runtime parameter "{name}" to "{value}" ...',
        *("PUT", ("global-parameters", "{name}"), ("name", "value")),
        body=lambda words: {"value": from_json(words["value"])},
    ),
    "clear_global_parameter": Call(
        'Clearing global runtime parameter "{name}" ...',
        *("DELETE", ("global-parameters", "{name}"), ("name",)),
        missing=NO_PARAMETER,
    ),
    "clear_policy": Call(
        'Clearing policy "{name}" on vhost "{vhost}" ...',
        *("DELETE", ("policies", "{vhost}", "{name}"), ("name",)),
        missing=NO_PARAMETER,
    ),
    "clear_operator_policy": Call(
        'Clearing operator policy "{name}" on vhost "{vhost}" ...',
        *("DELETE", ("operator-policies", "{vhost}", "{name}"), ("name",)),
        missing=NO_PARAMETER,
    ),
    "set_cluster_name": Call(
        "Setting cluster name to {name} ...",
        *("PUT", ("cluster-name",), ("name",)),
        body=lambda words: {"name": words["name"]},
    ),
}

APPLY_TO = ("queues", "exchanges", "all")


async def set_policy(session: Session, *, path: str, what: str) -> None:
    """[-p vhost] [--priority n] [--apply-to queues|exchanges|all] name pattern definition, or, as
    before 3.1, with the priority as the last word. Raises CtlError."""
    typed = session.typed
    name, pattern, definition, *more = typed.arguments
    text = more[0] if more else typed.options.get("--priority", "0")
    if (more and typed.has("--priority")) or not text.lstrip("-").isdigit():
        raise invalid(typed, f"--priority : {text}")
    apply_to = typed.options.get("--apply-to", "all")
    session.inform(
        f'Setting {what} "{name}" for pattern "{pattern}" to "{definition}" with priority'
        f' "{text}" for vhost "{typed.vhost}" ...'
    )
    await require(session, VHOST, {"vhost": typed.vhost})
    if apply_to not in APPLY_TO:
        told = f"apply-to '{apply_to}' unrecognised; should be 'queues', 'exchanges' or 'all'"
        raise CtlError(EXIT_UNAVAILABLE, f"Error:\nValidation failed\n\n{told}\n")
    body = {
        "pattern": pattern,
        "definition": _object(definition),
        "priority": int(text),
        "apply-to": apply_to,
    }
    await session.ask("PUT", (path, typed.vhost, name), body)
