"""The generator of the metadata workload: reads and writes of named objects, as the seed draws."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from shalott.core.generator.base import Answer, Completed, Context, Generator, Scheduled
from shalott.core.op import Invocation
from shalott.core.rng import draw_below, draw_float, stream_key

FLAG_VALUE = 1


class RegisterMix(msgspec.Struct, frozen=True):
    """For ever. A write of nothing deletes; every other value is written once in a run, except to
    the keys of ``flags``, which know FLAG_VALUE only.
    """

    keys: tuple[str, ...]
    flags: tuple[str, ...]
    write_fraction: float
    delete_fraction: float  # of the writes to a key that is no flag; of those to a flag, half
    which_key: int
    mix_key: int
    delete_key: int
    count: int = 0
    first_value: int = 1

    def next(self, context: Context) -> tuple[Answer, Generator]:
        count = self.count
        key = self.keys[draw_below(self.which_key, count, len(self.keys))]
        successor = msgspec.structs.replace(self, count=count + 1)
        return Scheduled(context.now_ns, self._invocation(key, count)), successor

    def _invocation(self, key: str, count: int) -> Invocation:
        if draw_float(self.mix_key, count) >= self.write_fraction:
            return Invocation(f="read", key=key)
        is_flag = key in self.flags
        if draw_float(self.delete_key, count) < (0.5 if is_flag else self.delete_fraction):
            return Invocation(f="write", key=key)
        value = FLAG_VALUE if is_flag else self.first_value + count
        return Invocation(f="write", key=key, value=value)

    def update(self, event: Completed) -> Generator:
        return self


def register_mix(
    keys: Sequence[str],
    flags: Sequence[str],
    *,
    write_fraction: float,
    delete_fraction: float,
    seed: int,
    part: str,
    first_value: int = 1,
) -> RegisterMix:
    """``part`` tells the draws of one mix of a run from those of another."""
    return RegisterMix(
        keys=tuple(keys),
        flags=tuple(flags),
        write_fraction=write_fraction,
        delete_fraction=delete_fraction,
        which_key=stream_key(seed, "register", part, "key"),
        mix_key=stream_key(seed, "register", part, "mix"),
        delete_key=stream_key(seed, "register", part, "delete"),
        first_value=first_value,
    )
