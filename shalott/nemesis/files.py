"""Faults of data files: bits flip, or ends are missing, in files that a pattern names.

They need no disk of ours: the files are changed behind their node's back, while it runs, or between
a kill and its start (``down``). Which files there are is known when the fault comes: each byte of
their content is as likely as any other, and of ends each file's.

A plan names who is damaged: a minority of the nodes, the same in every such fault (aiming.py), for
damage to every copy is a loss that no system prevents. Nothing heals it. The fault's row tells each
change (``changed``): node, file, offset, the byte before and after, or what the end held, and what
stands around it, which shows the record that it hit. Proved by reading each place again, at once.

A node may end its own process because of it. One that can't start from its files is left down, or
gets an empty disk if that is asked for (``replace``; process_states.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import msgspec

from shalott.cluster.corruption import choose_bit
from shalott.cluster.parts import ChangesDataFiles
from shalott.core.errors import HarnessError
from shalott.core.plan import Effect, FaultAction
from shalott.core.rng import Stream
from shalott.nemesis.context import FaultContext
from shalott.nemesis.process_states import GIVING_UP_S, How
from shalott.nemesis.proofs import Check, Seen, status_checks
from shalott.nemesis.record import Amount, FaultRecord, Step
from shalott.nemesis.weaker import as_kind

LANE = "disk"  # with what spoils disks
AROUND = 32  # bytes of what is told before and behind a change
LOST_TOLD = 256  # bytes of an end that a row tells
ATTEMPTS = 5  # files come and go while their node runs
EFFECTS: tuple[Effect, ...] = ("troubles-disk", "damages-data")


Replace = Annotated[
    bool, msgspec.Meta(description="A node that can't start from its files gets an empty disk")
]


def rot_of(action: FaultAction) -> How:
    """What such a fault demands of its nodes."""
    return "rot-replace" if action.parameters.get("replace") else "rot"


class Damage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``down``: between a kill, when the fault begins, and the start, when it ends."""

    files: Annotated[
        str,
        msgspec.Meta(
            pattern=r"^[^/]",
            description="Which, below the data directory: `*.log`, `jetstream/**/*.blk`",
        ),
    ] = "**"
    down: Annotated[bool, msgspec.Meta(description="Between a kill and the start")] = False
    replace: Replace = False


@dataclass(frozen=True, slots=True)
class Change:
    """``was`` is no more at ``offset`` of a file; ``now`` is, or the file ends there."""

    file: str
    offset: int
    was: bytes
    now: bytes
    around: bytes
    size: int

    def told(self, node: str) -> dict[str, object]:
        """As the row has it. Bytes are hexadecimal, what is around them is text."""
        row: dict[str, object] = {
            "node": node,
            "file": self.file,
            "offset": self.offset,
            "was": self.was[:LOST_TOLD].hex(),
            "around": "".join(chr(b) if 32 <= b < 127 else "." for b in self.around),
        }
        if self.now:
            return row | {"now": self.now.hex()}
        return row | {"cut_bytes": len(self.was), "size_before": self.size}

    def stands(self, found: bytes) -> bool:
        """Whether it is so, by what is found in its place."""
        return found == self.now if self.now else found != self.was


def _told(action: FaultAction) -> Damage:
    return msgspec.convert(action.parameters, Damage)


def _files(ctx: FaultContext) -> ChangesDataFiles:
    files = ctx.cluster.files
    assert isinstance(files, ChangesDataFiles), "its world is asked for change-files"
    return files


def _around(offset: int) -> tuple[int, int]:
    return max(0, offset - AROUND), 2 * AROUND


async def _standing(files: ChangesDataFiles, node: str, changes: Sequence[Change]) -> int:
    """How many of the changes are so now, read anew."""
    by_file: dict[str, list[Change]] = {}
    for change in changes:
        by_file.setdefault(change.file, []).append(change)
    count = 0
    for path, own in by_file.items():
        places = [(change.offset, len(change.was)) for change in own]
        found = await files.read_places(node, path, places)
        count += sum(change.stands(each) for change, each in zip(own, found, strict=True))
    return count


async def _flip(
    files: ChangesDataFiles, node: str, found: Mapping[str, int], count: int, draws: Stream
) -> list[Change]:
    """A bit in each of so many bytes, no byte twice."""
    paths, sizes = [*found], [*found.values()]
    places: dict[str, dict[int, int]] = {}
    for _ in range(count):
        number, offset, bit = choose_bit(sizes, draws)
        places.setdefault(paths[number], {}).setdefault(offset, 1 << bit)
    changes = []
    for path, own in sorted(places.items()):
        near = await files.read_places(node, path, [*map(_around, sorted(own))])
        changed = await files.flip_bits(node, path, sorted(own.items()))
        for offset, around, (old, new) in zip(sorted(own), near, changed, strict=True):
            changes.append(Change(path, offset, bytes([old]), bytes([new]), around, found[path]))
    return changes


async def _cut(
    files: ChangesDataFiles, node: str, found: Mapping[str, int], count: int, draws: Stream
) -> list[Change]:
    """So many bytes of the end of one file's content, and what is allocated behind them."""
    path = draws.choice([*found])
    offset = max(0, found[path] - count)
    places = [(offset, found[path] - offset), _around(offset)]
    was, around = await files.read_places(node, path, places)
    await files.cut_file(node, path, offset)
    return [Change(path, offset, was, b"", around, found[path])]


def _damage(cut: bool) -> Step:
    async def damage(ctx: FaultContext, action: FaultAction, node: str) -> None:
        told, files = _told(action), _files(ctx)
        await ctx.processes.demand(action.id, node, rot_of(action))
        if told.down:
            await ctx.processes.demand(action.id, node, "kill")
        changes = await spoil(ctx, action, node, files)
        standing = await _standing(files, node, changes)
        ctx.left.setdefault("damage", {})[node] = (changes, standing)
        ctx.told.setdefault("changed", [])
        rows = ctx.told["changed"]
        assert isinstance(rows, list)
        rows += [change.told(node) for change in changes]

    async def spoil(
        ctx: FaultContext, action: FaultAction, node: str, files: ChangesDataFiles
    ) -> list[Change]:
        draws, pattern = ctx.rng(action, f"files of {node}"), _told(action).files
        for attempt in range(1, ATTEMPTS + 1):
            found = await files.find(node, pattern)
            if not found:
                raise HarnessError(f"{node} has no file with content that {pattern} means")
            try:
                way = _cut if cut else _flip
                return await way(files, node, found, int(action.amount), draws)
            except (HarnessError, OSError):
                if attempt == ATTEMPTS:
                    raise
        raise AssertionError("the last attempt returns or raises")

    async def inject(ctx: FaultContext, action: FaultAction) -> None:
        if _told(action).down:
            ctx.told["effects"] = ["ends-processes", *EFFECTS]
        await ctx.at_once(damage(ctx, action, node) for node in action.nodes or ())

    return inject


async def _let_go(ctx: FaultContext, action: FaultAction) -> None:
    """The damage stays; the row says how much of it was still there."""
    files, damaged = _files(ctx), ctx.left.get("damage", {})
    left: dict[str, int] = {}
    for node, (changes, _) in sorted(damaged.items()):
        left[node] = await _standing(files, node, changes)
    ctx.told["changes_left"] = left

    async def let_go(node: str) -> None:
        if not _told(action).down:
            await asyncio.sleep(GIVING_UP_S)
        await ctx.processes.withdraw(action.id, node)

    await ctx.at_once(let_go(node) for node in action.nodes or ())


def _changes_check(ctx: FaultContext, node: str) -> Check:
    """Of what was read again when it had been done: a node that runs may write over it since."""
    damaged: tuple[list[Change], int] = ctx.left.get("damage", {}).get(node, ([], 0))
    changes, stand = damaged

    async def look() -> Seen:
        return stand

    return Check(
        node,
        f"changes in files of {node}",
        look,
        lambda: len(changes),
        agrees=lambda seen, expected: seen == expected != 0,
    )


def _effective(ctx: FaultContext, action: FaultAction) -> list[Check]:
    own = [_changes_check(ctx, node) for node in action.nodes or ()]
    return [*own, *status_checks(ctx, action)] if _told(action).down else own


def _as_the_other(action: FaultAction) -> Iterator[FaultAction]:
    for weaker in as_kind(action, CORRUPT_FILES):
        yield msgspec.structs.replace(weaker, parameters=action.parameters)


CORRUPT_FILES = FaultRecord(
    name="corrupt-files",
    summary="bits flip in files of a minority, always the same nodes in a plan, or of those named",
    needs=("change-files", "kill"),
    inject=_damage(cut=False),
    heal=_let_go,
    effective=_effective,
    healed=status_checks,
    effects=EFFECTS,
    amount=Amount("bits", (1, 16, 256), least=1, most=4096),
    parameters=Damage,
    choices={"down": (False, True)},
    does_not_heal=True,
    may_hit_minority=True,
    takes="copies",
    lane=LANE,
    may_exit=True,
    strength=51,
)
TRUNCATE_FILES = replace(
    CORRUPT_FILES,
    name="truncate-files",
    summary="the end of such a file is missing",
    inject=_damage(cut=True),
    amount=Amount("bytes", (1, 64, 4096), least=1, most=1 << 30),
    weaker=_as_the_other,
    strength=52,
)

FAULTS = (CORRUPT_FILES, TRUNCATE_FILES)
