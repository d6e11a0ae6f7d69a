"""What keeps the house small to the eye: sizes of signatures and classes, plain words, types, and
imports at the head of their file.

A rule is a function from a source to sentences, each with the file, the line and what to do.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from tests.tidy.citations import docstrings
from tests.tidy.sources import PACKAGE, Source

PARAMETERS_MAX = 8
METHODS_MAX = 22

# Words that make a reader guess who is meant.
RIDDLE = re.compile(r"\b(?:who(?:m)?ever|whatever|some(?:body|one)|nobody)\b", re.IGNORECASE)
# Names that say when or how, and not what: a file is named for the thing that it holds.
NAMES_THAT_TELL_LITTLE = frozenset(
    (
        *("asked", "at_work", "calm", "common", "following", "helpers", "hindsight", "keeping"),
        *("kept", "lines", "lives", "looks", "misc", "noticed", "noting", "places", "rot"),
        *("second_lines", "standing", "told", "untold", "util", "utils"),
    )
)

# Where foreign data enters, by room: how many times its files may say ``Any``, 300 in all.
ANY_MAX: Mapping[str, int] = {
    "broker": 30,
    "checkers": 25,
    "clients": 16,
    "cluster": 53,
    "core": 11,
    "harness": 29,
    "nemesis": 6,
    "spark_analysis": 8,
    "workloads": 2,
}


def signatures(source: Source) -> Iterator[str]:
    for node in source.nodes:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        names = [each.arg for each in (*node.args.posonlyargs, *node.args.args)]
        names += [each.arg for each in node.args.kwonlyargs]
        names += [each.arg for each in (node.args.vararg, node.args.kwarg) if each is not None]
        count = len(names) - (names[:1] in (["self"], ["cls"]))
        if count > PARAMETERS_MAX:
            yield (
                f"{source.path}:{node.lineno}: {node.name} has {count} parameters, "
                f"more than {PARAMETERS_MAX}: make a struct of what belongs together"
            )


def classes(source: Source) -> Iterator[str]:
    for node in source.nodes:
        if isinstance(node, ast.ClassDef):
            names = {
                each.name
                for each in node.body
                if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
            }
            if len(names) > METHODS_MAX:
                yield (
                    f"{source.path}:{node.lineno}: {node.name} has {len(names)} methods, "
                    f"more than {METHODS_MAX}: make it of parts"
                )


def riddles(source: Source) -> Iterator[str]:
    lines = source.text.splitlines()
    for string, _ in docstrings(source.tree):
        for number in range(string.lineno, (string.end_lineno or string.lineno) + 1):
            for match in RIDDLE.finditer(lines[number - 1]):
                yield f"{source.path}:{number}: {match.group()}: say who or what"
    for number, line in enumerate(lines, 1):
        if (comment := re.search(r"(?:^|\s)# (.*)", line)) is not None:
            for match in RIDDLE.finditer(comment[1]):
                yield f"{source.path}:{number}: {match.group()}: say who or what"


def names(source: Source) -> Iterator[str]:
    path = PurePosixPath(source.path)
    if path.stem in NAMES_THAT_TELL_LITTLE:
        yield f"{source.path}: the name tells little: name the file for what it holds"


LIMITS: Mapping[str, Callable[[Source], Iterator[str]]] = {
    "signatures": signatures,
    "classes": classes,
    "riddles": riddles,
    "names": names,
}


def any_by_room(sources: Sequence[Source]) -> Counter[str]:
    """How often each top folder's files say ``Any``."""
    found: Counter[str] = Counter()
    for source in sources:
        room = source.path.split("/")[1] if source.path.startswith(f"{PACKAGE}/") else ""
        found[room] += len(re.findall(r"\bAny\b", source.text))
    return found


def late_imports(source: Source) -> Iterator[tuple[int, str]]:
    """(line, module) of each import inside a function."""
    for function in source.nodes:
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.Import):
                    for alias in node.names:
                        yield node.lineno, alias.name
                elif isinstance(node, ast.ImportFrom):
                    yield node.lineno, node.module or ""
