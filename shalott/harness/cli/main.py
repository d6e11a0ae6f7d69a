"""The entry point of `shalott`: its exit codes, and one sentence for what goes wrong.

0 valid, 1 invalid, 2 unknown, 130 interrupted before there was a run, 254 bad arguments, 255 the
harness itself failed, in whichever way: 1 and 2 are said by a verdict only. commands.py finds the
commands; `check` is started without it, because to import typer takes as long as checking a million
operations, and `test` is refused without it where that can be seen at once.

Ctrl-C while modules load: one line, and exit code 130.

An import that is interrupted may turn the KeyboardInterrupt into anything (an extension module
raises ImportError, a plug-in catches all), and nothing is there yet that would have to be put in
order. So as long as ``quiet_exit`` is entered the process ends in the signal's handler. It stands
before every other import, and imports next to nothing.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from shalott.core.errors import HarnessError, ShalottError, UsageError

EXIT_BAD_ARGUMENTS = 254
EXIT_HARNESS_FAILED = 255
EXIT_INTERRUPTED = 130
LONGEST_NUMBER = 100_000  # digits of a value in a history, in place of Python's 4,300
SENTENCE = "interrupted before the run began"
SEVERAL = ("policy", "trigger", "bug", "tag", "load")  # options that are typed once a value
_last_words: list[Callable[[str], None]] = []


def main(arguments: Sequence[str] | None = None) -> None:
    # numpy's linear algebra, which nothing here uses, starts a thread a core that spins for 0.1 s.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    sys.set_int_max_str_digits(LONGEST_NUMBER)
    for stream in (sys.stdout, sys.stderr):  # a name that is no text is shown, not refused
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    sys.exit(run_command(sys.argv[1:] if arguments is None else arguments))


def run_command(arguments: Sequence[str]) -> int:
    """Run one command; every error becomes one sentence and an exit code."""
    try:
        _require_directory()
        if arguments[:1] == ["check"]:
            with quiet_exit():
                from shalott.harness.cli.checking import run_check

            return run_check(arguments[1:])
        if arguments[:1] == ["--version"]:
            return _print_version()
        if arguments[:1] == ["test"]:
            return _run_test(arguments)
        return _run_app(list(arguments) or ["--help"])
    except UsageError as error:
        return _complain(str(error), EXIT_BAD_ARGUMENTS)
    except (HarnessError, ShalottError) as error:
        return _complain(f"the harness failed: {error}", EXIT_HARNESS_FAILED)
    except KeyboardInterrupt:
        return _complain(SENTENCE, EXIT_INTERRUPTED)
    except BrokenPipeError:
        return EXIT_HARNESS_FAILED
    except BaseException as error:  # SystemExit, too: no command of ours ends by it
        from shalott.harness.cli.unforeseen import sentence_about, sentence_about_file

        if isinstance(error, OSError) and (sentence := sentence_about_file(error, arguments)):
            return _complain(sentence, EXIT_BAD_ARGUMENTS)
        return _complain(sentence_about(error, arguments), EXIT_HARNESS_FAILED)


def _require_directory() -> None:
    try:
        os.getcwd()  # noqa: PTH109 (pathlib takes longer to load than `check` to check)
    except OSError as error:
        raise UsageError("the working directory is gone: change to another one") from error


def _print_version() -> int:
    with quiet_exit():
        from importlib.metadata import version

    sys.stdout.write(f"shalott {version('shalott')}\n")
    return 0


def _run_test(arguments: Sequence[str]) -> int:
    """`test`, whose refusals are to be found where `--junit` says, too."""
    junit = None
    if any(word.startswith("--junit") for word in arguments):
        with quiet_exit():
            from shalott.harness.run.junit_file import RefusedJunit, path_named

            path = path_named(arguments)
            junit = RefusedJunit(path, arguments) if path is not None else None
            on_interrupt(junit.refuse if junit is not None else _nothing)
    try:
        return _run_app(_with_file_options(arguments))
    except ShalottError as error:
        if junit is not None:
            junit.refuse(str(error))
        raise
    except KeyboardInterrupt:
        interrupted()
        raise
    finally:
        on_interrupt(_nothing)


def _with_file_options(arguments: Sequence[str]) -> Sequence[str]:
    """With those that a compose file gives itself; what is typed counts more."""
    path = option_typed(arguments, "--compose")
    if not path:
        return arguments
    with quiet_exit():
        from shalott.cluster.compose.record import NAME, file_options

        words = ["--system", NAME]
        for name, value in file_options(path).items():
            flag = f"--{name.replace('_', '-')}"
            if isinstance(value, bool):
                words.append(flag if value else flag.replace("--", "--no-", 1))
            elif isinstance(value, str):
                words += [flag, value]
            elif name in SEVERAL:
                words += [word for each in value for word in (flag, each)]
            else:
                words += [flag, ",".join(value)]
    return [*arguments[:1], *words, *arguments[1:]]


def option_typed(arguments: Sequence[str], flag: str) -> str:
    """The last value of an option among the arguments; "" if it is not there."""
    found = ""
    for place, word in enumerate(arguments):
        name, equals, value = word.partition("=")
        if name == flag:
            found = value if equals else "".join(arguments[place + 1 : place + 2])
    return found


def _run_app(arguments: Sequence[str]) -> int:
    with quiet_exit():
        if arguments[:1] == ["test"] and not any(w.startswith("--load") for w in arguments):
            from shalott.harness.run.request import refuse_quickly

            refuse_quickly(arguments[1:])
        from shalott.harness.cli.commands import make_command

        command = make_command(arguments)
    return command()


def _nothing(sentence: str) -> None:
    """There is no file to leave a word in."""


def _complain(sentence: str, code: int) -> int:
    sys.stderr.write(f"shalott: {sentence}\n")
    return code


def on_interrupt(say: Callable[[str], None]) -> None:
    """Have ``say`` called with the sentence before such an exit, in place of what was before."""
    _last_words[:] = [say]


def interrupted() -> None:
    """Calls what ``on_interrupt`` was given; if that fails, the exit goes on nevertheless."""
    for say in _last_words:
        try:
            say(SENTENCE)
        except (OSError, ShalottError):  # a full disk, a directory that is gone
            return


@contextmanager
def quiet_exit() -> Iterator[None]:
    """While it lasts, SIGINT ends the process in one line. Only in the main thread; elsewhere
    nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, _exit)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _exit(number: int, frame: FrameType | None) -> None:
    interrupted()
    os.write(2, f"shalott: {SENTENCE}\n".encode())
    os._exit(EXIT_INTERRUPTED)


if __name__ == "__main__":
    main()
