"""Long texts made short without becoming the same: they are cut where they differ."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from os.path import commonprefix

CUT = "…"
_VERB = re.compile(r"\S{1,30} (→ )?")


def cut_apart(texts: Sequence[str], most: int, also: Iterable[str] = ()) -> list[str]:
    """Each text in at most ``most`` characters (12 or more).

    A long text keeps its beginning, and what stands about the place where it first differs from the
    text that has most in common with it, of these and of ``also``.
    """
    if all(len(text) <= most for text in texts):
        return list(texts)
    shared: dict[str, int] = {}
    for one, next_one in pairwise(sorted({*texts, *also})):
        length = len(commonprefix([one, next_one]))
        for text in (one, next_one):
            shared[text] = max(shared.get(text, 0), length)
    return [_cut(text, most, shared.get(text, 0)) for text in texts]


def cut_operations(texts: Sequence[str], most: int) -> list[str]:
    """Of "write X" and "read → X" the X, in about ``most`` characters."""
    split = [_VERB.match(text) for text in texts]
    verbs = [found[0] if found else "" for found in split]
    rests = [text.removeprefix(verb) for text, verb in zip(texts, verbs, strict=True)]
    cut = cut_apart(rests, most - max(map(len, verbs), default=0))
    return [verb + rest for verb, rest in zip(verbs, cut, strict=True)]


def _cut(text: str, most: int, differs_at: int) -> str:
    if len(text) <= most:
        return text
    if differs_at < most - 1 - most // 4:
        return text[: most - 1] + CUT
    head = most // 4
    room = most - head - 2
    begin = min(max(head, differs_at - room // 2), len(text) - room - 1)
    end = begin + room
    if end >= len(text) - 1:
        return text[:head] + CUT + text[len(text) - room - 1 :]
    return text[:head] + CUT + text[begin:end] + CUT
