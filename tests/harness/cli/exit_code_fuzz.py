"""Random calls of every command, each in a process of its own; what may not be is a fault.

A call is drawn from what a hurried or hostile user has at hand: commands and options by name,
values of the wrong kind, runs, plans and histories of which some are damaged, plug-ins that are
broken in a callable of their record, and working directories that are not what they seem. No call
may end with 1 (2) unless a verdict says Invalid (unknown), or show a traceback.
"""

from __future__ import annotations

import os
import random
import re
import signal
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import typer

from shalott.harness.cli.checking import OPTIONS as CHECK_OPTIONS
from shalott.harness.cli.commands import COMMANDS, ELSEWHERE, make_app
from shalott.harness.cli.main import run_command

CODES = (0, 1, 2, 130, 254, 255)
AS_RABBITMQCTL = range(64, 79)  # of `ctl`, as BSD numbers them
CALL_LIMIT_S = 300
# What says that a verdict was reached, by the code that it has; and who else means something by it.
SAYS = {1: re.compile(r"\binvalid\b", re.IGNORECASE), 2: re.compile(r"\bunknown\b", re.IGNORECASE)}
OTHER_MEANING = {("doctor", 1), ("doctor", 2), ("ctl", 1), ("ctl", 2)}
SIMULATED = ("--cluster", "sim", "--time-limit", "2", "--seed", "7")

PLUG_IN = """
from dataclasses import fields, replace
from shalott.cluster.systems.record import SYSTEMS
from shalott.workloads.record import WORKLOADS

{preamble}

def broken(*args, **more):
    {body}

BROKEN_WORKLOAD = replace(WORKLOADS.find("queue"), name="broken-workload", {workload})
BROKEN_SYSTEM = replace(SYSTEMS.find("mirrored"), name="broken-system", {system})
"""
BODIES = (
    "raise KeyError('x')",
    "raise SystemExit(1)",
    "return None",
    "return 'words'",
    "raise RuntimeError(chr(10) * 3 + 'x')",
    "import sys; sys.exit('stop')",
)
PREAMBLES = ("", "", "", "", "raise ValueError('at import')", "raise SystemExit(1)", "def x(:")
NUMBERS = ("0", "-1", "1", "3", "-1ms", "1s", "1e400", "nan", "9" * 5000)
PLACES = ("../..", "/", "~", "-", "latest", "store", "/dev/null", "/proc/self/mem")
ODD = ("", "\udcff", "a\nb", "--", "=", "null", "{}", "[]", "2026-11-28", "n1", "n1,n2,n3")
NAMES = (
    *("sim", "local", "safe", "upstream", "mirrored", "dledger", "queue", "log", "register"),
    *("unordered-queue", "all", "none", "partition-halves", "kill", "KB-RMQ-22", "broken"),
    *("broken-workload", "broken-system", "os", "both", "porcupine", "policies", "ha-status"),
)
# What makes sense, by command; of it a word may be changed or left out.
SENSIBLE: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "test": (("--nemesis", "none"), ("--system", "dledger"), ("--plan", "store/latest/plan.json"),
             ("--plan", "store/damaged/plan.json"), ("--workload", "consume", "--rate", "50")),
    "analyze": ((), ("latest",), ("store/damaged",), ("mirrored-upstream-queue",)),
    "report": (("store", "--out", "reported"), ("store/damaged",)),
    "bugs": ((), ("KB-RMQ-22",)),
    "search": (("--system", "mirrored"), ("--store", "empty")),
    "replay": (("store/latest/plan.json",), ("store/damaged/plan.json",)),
    "shrink": (("store/damaged/plan.json", "--budget", "2"),),
    "runs": ((), ("store",), ("store", "--json"), ("store", "--valid", "false", "--last", "1")),
    "matrix": (("night.toml",), ("night.toml", "--only", "c"), ("night-damaged.toml",)),
    "check": (("invalid.edn", "--model", "register"), ("latest", "--model", "unordered-queue"),
              ("big.edn", "invalid.edn", "--model", "register"), ("damaged", "--model", "log"),
              ("invalid-damaged.edn", "--model", "cas-register", "--json"), ("--models",)),
    "export": (("latest",), ("damaged", "--out", "exported.edn"), ("invalid.edn",)),
    "ctl": (("ha-status",), ("list_queues", "--run", "latest"), ("promote", "--node", "n1")),
    "doctor": ((),),
    "prepare": (("--system", "mirrored"),),
}  # fmt: skip
VALUES = (*NUMBERS, *PLACES, *ODD, *NAMES)


@dataclass(frozen=True, slots=True)
class Call:
    words: tuple[str, ...]
    directory: Path
    module: str  # the text of the module that --load names; "" for none

    def __str__(self) -> str:
        return f"(in {self.directory.name or '/'}) shalott {' '.join(map(repr, self.words))}"


@dataclass(frozen=True, slots=True)
class Ended:
    code: int
    out: str
    err: str

    def faults(self, call: Call) -> Iterator[str]:
        """What may not be."""
        command = call.words[0] if call.words else ""
        if self.code not in CODES and not (command == "ctl" and self.code in AS_RABBITMQCTL):
            yield f"it ended with {self.code}"
        if "Traceback (most recent call last)" in self.out + self.err:
            yield "a traceback was shown"
        sought = SAYS.get(self.code)
        is_told = sought is None or sought.search(self.out) or (command, self.code) in OTHER_MEANING
        if not is_told:
            yield f"it ended with {self.code} without a verdict"
        if "shalott: the harness failed: " in self.err and "errors.log" in self.err:
            yield "an exception that nobody foresaw"


def options_of_commands() -> dict[str, tuple[str, ...]]:
    """Every command's options, out of what the command line is made of."""
    found = {}
    group = typer.main.get_command(make_app())
    for name in COMMANDS:
        if name in ELSEWHERE:
            found[name] = tuple(names[0] for names, *_ in CHECK_OPTIONS)
        else:
            command = group.commands[name]  # type: ignore[attr-defined]
            found[name] = tuple(word for each in command.params for word in each.opts)
    return {
        name: tuple(
            word
            for word in words
            if word not in ("--follow", "--host", "--leave-running", "--install")
        )
        for name, words in found.items()
    }


class Calls:
    """Draws calls. ``place`` has a folder ``store`` with runs, and files named by ``files``."""

    def __init__(self, place: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.place = place
        self.options = options_of_commands()
        self.files = sorted(str(path) for path in place.rglob("*"))
        self.directories = [place, place / "store", place / "empty", place / "gone", Path("/")]

    def draw(self) -> Call:
        rng = self.rng
        command = rng.choice((*COMMANDS, "", "nothing", "--version"))
        words = [command] if command else []
        words += rng.choice(SENSIBLE.get(command, ((),))) if rng.random() < 0.6 else ()
        for _ in range(rng.choice((0, 0, 0, 1, 2, 3))):  # words more
            words.insert(rng.randint(1, len(words)) if words else 0, self._value())
        for _ in range(rng.choice((0, 0, 0, 1, 2, 3))):  # options more
            name = rng.choice(self.options.get(command, ("--store", "--load")))
            value = self._value()
            words += rng.choice(([f"{name}={value}"], [name, value], [name, value], [name]))
        if len(words) > 1 and rng.random() < 0.4:  # a word less, or another one
            spot = rng.randrange(1, len(words))
            words[spot : spot + 1] = rng.choice(([], [self._value()]))
        module = self._plug_in() if rng.random() < 0.3 else ""
        if module:
            words += ["--load", "broken"]
            if command == "test" and rng.random() < 0.8:
                kind = rng.choice(("workload", "system"))
                words = ["test", "--load", "broken", f"--{kind}", f"broken-{kind}"]
        return Call((*words, *self._tamed(command)), rng.choice(self.directories), module)

    def _tamed(self, command: str) -> Sequence[str]:
        """What keeps a call from booting real nodes, serving for ever or sweeping this machine."""
        if command in ("test", "replay"):
            return SIMULATED if command == "test" else SIMULATED[:2]
        if command == "search":
            return ("--seeds", "1", "--jobs", "1", "--time-limit", "1")
        if command in ("clean", "node", "up"):
            return (self.rng.choice(("--help", "--nothing", "extra")),)
        return ("--port", self.rng.choice(("-1", "99999", "x"))) if command == "serve" else ()

    def _value(self) -> str:
        if self.rng.random() < 0.5:
            return self.rng.choice(VALUES)
        path = self.rng.choice(self.files)
        return self.rng.choice((path, os.path.relpath(path, self.place), Path(path).name))

    def _plug_in(self) -> str:
        rng = self.rng
        broken = {
            "workload": ("build", "checkers", "complete", "check", "describe", "needs"),
            "system": ("make", "check", "promises", "readers", "profiles", "speaks"),
        }
        return PLUG_IN.format(
            preamble=rng.choice(PREAMBLES),
            body=rng.choice(BODIES),
            **{kind: f"{rng.choice(names)}=broken" for kind, names in broken.items()},
        )


def perform(call: Call) -> Ended:
    """In a fork of this process, which has loaded what every command needs."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if child == 0:
            _be_called(call, out.fileno(), err.fileno())
        _, status = os.waitpid(child, 0)
        out.seek(0), err.seek(0)
        texts = [stream.read().decode("utf-8", "replace") for stream in (out, err)]
        return Ended(os.waitstatus_to_exitcode(status), *texts)


def _be_called(call: Call, out: int, err: int) -> None:
    code = 99
    try:
        null = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((null, 0), (out, 1), (err, 2)):
            os.dup2(source, target)
        sys.stdin = os.fdopen(0)
        sys.stdout, sys.stderr = (os.fdopen(n, "w", errors="backslashreplace") for n in (1, 2))
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # pytest's own would raise
        signal.alarm(CALL_LIMIT_S)
        os.chdir(_prepared(call))
        code = run_command(list(call.words))
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code & 255)


def _prepared(call: Call) -> Path:
    """The working directory, with the module in it, or one that is removed meanwhile."""
    directory = call.directory
    if directory.name == "gone":
        directory = Path(tempfile.mkdtemp())
        os.chdir(directory)
        directory.rmdir()
        return Path()
    if call.module:
        module = Path(tempfile.mkdtemp())
        (module / "broken.py").write_text(call.module)
        sys.path.insert(0, str(module))
    return directory


def campaign(place: Path, calls: int, seed: int) -> list[str]:
    """A sentence for each fault."""
    drawn = Calls(place, seed)
    faults = []
    for _ in range(calls):
        call = drawn.draw()
        ended = perform(call)
        said = (ended.err or ended.out).strip()[-400:]
        faults += [f"{each}: {call}\n    {said}" for each in ended.faults(call)]
    return faults
