"""A name that is not there: the sentence names those that look like it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from shalott.core.errors import UsageError

FEW = 20  # so many names can be told where none is near


def unknown(kind: str, name: str, known: Iterable[str], listing: str) -> UsageError:
    """To be raised. ``listing``: the command that lists all of the kind."""
    names = list(dict.fromkeys(known))
    near = difflib.get_close_matches(name.lower(), names, n=3)
    near += [each for each in names if name and name.lower() in each and each not in near][:3]
    if near:
        said = f"did you mean {' or '.join(near)}?"
    elif len(names) <= FEW:
        said = f"choose one of {', '.join(names)};"
    else:
        said = "nothing has a name like it;"
    return UsageError(f"unknown {kind} {name}: {said} `{listing}` lists all")
