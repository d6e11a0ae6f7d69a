"""Where the stand-ins of tests live: in tests/world, so that the next test finds them.

A world, a fake or something kept in memory that one test folder keeps to itself is written again
by the next one. The rule reads names, as that is what a developer searches for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from tests.tidy.sources import Source

HOME = "tests/world/"
CLASSES = re.compile(
    r"^class ((?:Fake|Memory|Toy|Stub)[A-Z]\w*|\w*(?:World|Fake|Double|Stub)|No(?:Events|Disk))\b",
    re.MULTILINE,
)
MODULES = re.compile(
    r"^(?:fakes?|doubles?|stubs?|world)$|^(?:fake|memory|toy)_|_(?:world|fixture)$"
)

# (file, class): why it is of use to its own file alone.
MEANT: Mapping[tuple[str, str], str] = {
    ("tests/broker/rabbit/mirrored/test_rows.py", "World"): "one node's tables and a commit",
    ("tests/broker/rocket/nameserver/test_routes.py", "World"): "the table of routes and its clock",
    (
        "tests/broker/rocket/replicas/test_identity.py",
        "World",
    ): "one disk and its broker's identity",
}


def stand_ins(source: Source) -> Iterator[tuple[str, str]]:
    """(file, name) of what belongs in tests/world."""
    path = PurePosixPath(source.path)
    if not source.path.startswith("tests/") or source.path.startswith(HOME):
        return
    if MODULES.search(path.stem):
        yield source.path, path.stem
    for match in CLASSES.finditer(source.text):
        yield source.path, match.group(1)


def astray(sources: Sequence[Source]) -> Iterator[str]:
    """One sentence for each stand-in outside of tests/world."""
    for source in sources:
        for path, name in stand_ins(source):
            if (path, name) not in MEANT:
                yield f"{path}: {name}: move it to {HOME}, or use what is there"
