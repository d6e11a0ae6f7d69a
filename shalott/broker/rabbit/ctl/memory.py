"""set_vm_memory_high_watermark, with the units and refusals of rabbitmqctl 3.10."""

from __future__ import annotations

import re
from collections.abc import Mapping

from shalott.broker.rabbit.ctl.arguments import EXIT_USAGE, CtlError
from shalott.broker.rabbit.ctl.session import EXIT_DATA, Session

_UNITS: Mapping[str, int] = {
    "": 1,
    **dict.fromkeys(("k", "ki", "kiB"), 1 << 10),
    **dict.fromkeys(("M", "Mi", "MiB"), 1 << 20),
    **dict.fromkeys(("G", "Gi", "GiB"), 1 << 30),
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
}
PATH = ("shalott", "vm_memory_high_watermark")


async def set_watermark(session: Session) -> None:
    """``<fraction>`` or ``absolute <value>``. Raises CtlError."""
    words = session.typed.arguments
    if words[0] == "absolute" and len(words) == 2:
        found = re.fullmatch(r"(\d+)(\w{0,3})", words[1])
        if found is None:
            raise _bad("")
        if found[2] not in _UNITS:
            raise _bad("Invalid units.")
        session.inform(f"Setting memory threshold on {session.node} to {words[1]} bytes ...")
        await session.ask("PUT", PATH, {"absolute": int(found[1]) * _UNITS[found[2]]})
        return
    if len(words) == 2:
        raise _refused("too many arguments.")
    try:
        fraction = float(words[0])
    except ValueError:
        raise (_refused("not enough arguments.") if words[0] == "absolute" else _bad("")) from None
    if not 0 <= fraction <= 1:
        raise _bad("The threshold should be a fraction between 0.0 and 1.0")
    session.inform(f"Setting memory threshold on {session.node} to {words[0]} ...")
    await session.ask("PUT", PATH, {"fraction": fraction})


def _bad(text: str) -> CtlError:
    told = f"Bad argument: {text}" if text else "Bad argument."
    return CtlError(EXIT_DATA, f"Error (argument validation): {told}")


def _refused(text: str) -> CtlError:
    return CtlError(EXIT_USAGE, f"Error (argument validation): {text}")
