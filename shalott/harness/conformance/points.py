"""The points that a plug-in is tried on, and what its author does about one that failed."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from shalott.core.errors import ShalottError

State = Literal["passed", "failed", "not tried"]
OWN_CODE = str(Path(__file__).parents[2])

# In the order in which they are told; the advice is for authors.
POINTS = {
    "builds": "Let make, build and checkers be functions of the plan alone, that return a System,"
    " a Workload and checkers; draw from stream_key(plan.seed, ...), never from random.",
    "boots": "Let await_ready raise BootFailed with what each node lacks, and return as soon as"
    " clients are served; a node's program must listen where its topology says.",
    "serves": "Let await_ready return only when every node answers clients, and let a client answer"
    ' Completion(type="ok") when its operation happened.',
    "observes": "Let observe return a mapping, and raise ClientError for a node that can't be"
    " asked; give each question a time-out.",
    "kills": "Let a client raise Unreachable from open or invoke when nothing was sent; let a node"
    " come up again on the data of the life before, whatever was half written.",
    "restarts": "Let the program end at SIGTERM, and come up again on its own data.",
    "timeouts are info": 'Let the client raise Indefinite, or answer Completion(type="info"), for a'
    " time-out or a connection that ends after something was sent. If the operation changes"
    " nothing, name its f in WorkloadRecord.reads.",
    "pauses": "A node that goes on after a pause must serve again: let clients connect anew.",
    "cuts": "Let nodes dial each other as topology.dial says, and let await_settled wait until"
    " they have found each other again.",
    "collects": "Write below {data}, name those files in NodeSpec.collect, and print a line when"
    " the program starts, flushed.",
    "valid without faults": "Nothing was broken in this run: what the verdict names is the"
    " client's, the drain's or the checker's error. Its report shows the operations.",
    "drains see all": "Let the final generator ask every node until it says that nothing is left;"
    " give the workload a longer drain.",
    "a loss is found": "The client acknowledged writes that it never sent, and no checker said"
    " False: let one compare what was acknowledged with what the drain or reads returned.",
    "a refused write is found": "The client called writes fail that took effect, and no checker"
    " said False: let one look for what was returned although its write had failed.",
    "survives faults": "The harness must get to the end of a run whatever is broken: look at the"
    " run's log.txt for the exception.",
    "refused writes stay away": "What ended as fail was returned later, so it did happen: fail is"
    " only for what certainly did not happen, all else is info.",
}


class Failed(Exception):  # noqa: N818 - it is no error of ours
    """A point is not kept, in one sentence."""


class NotTried(Exception):  # noqa: N818
    """A point has no meaning here, and why."""


@dataclass(frozen=True, slots=True)
class Point:
    name: str
    state: State
    told: str = ""

    @property
    def advice(self) -> str:
        return POINTS[self.name] if self.state == "failed" else ""


@dataclass
class Score:
    """What became of each point so far. ``tell`` is called with each."""

    tell: Callable[[Point], None]
    points: list[Point] = field(default_factory=list)

    def note(self, name: str, state: State, told: str = "") -> None:
        point = Point(name, state, " ".join(told.split()))
        self.points.append(point)
        self.tell(point)

    def has(self, name: str) -> bool:
        return any(point.name == name for point in self.points)

    def passed(self, name: str) -> bool:
        return any(point.name == name and point.state == "passed" for point in self.points)

    @contextmanager
    def trying(self, name: str) -> Iterator[list[str]]:
        """Passed unless the block raises; what is put into the list is told."""
        told: list[str] = []
        try:
            yield told
        except NotTried as why:
            self.note(name, "not tried", str(why))
        except Failed as why:
            self.note(name, "failed", str(why))
        except (asyncio.CancelledError, KeyboardInterrupt):
            raise
        except Exception as error:
            self.note(name, "failed", whose(error))
        else:
            self.note(name, "passed", " ".join(told))

    def rest(self, why: str) -> None:
        """What can't be tried any more."""
        for name in POINTS:
            if not self.has(name):
                self.note(name, "not tried", why)


def whose(error: BaseException) -> str:
    """An exception with the place in the plug-in that it came from."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    said = str(error) or type(error).__name__
    if isinstance(error, ShalottError):
        return said
    frames = traceback.extract_tb(error.__traceback__)
    foreign = [frame for frame in frames if not frame.filename.startswith(OWN_CODE)]
    at = (foreign or frames)[-1:]
    where = f" at {at[0].filename}:{at[0].lineno} in {at[0].name}" if at else ""
    return f"{type(error).__name__}{where}: {said}"
