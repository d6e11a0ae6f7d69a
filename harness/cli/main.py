"""The entry point of `shalott`: its exit codes, and one sentence for whatever goes wrong.

0 valid, 1 invalid, 2 unknown, 254 bad arguments, 255 the harness itself failed. The commands are in
commands.py; `check` is started without it, because to import typer takes as long as checking a
million operations.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from shalott.harness.core.errors import HarnessError, ShalottError, UsageError

EXIT_BAD_ARGUMENTS = 254
EXIT_HARNESS_FAILED = 255


def main(arguments: Sequence[str] | None = None) -> None:
    """The command's entry point."""
    # numpy's linear algebra, which nothing here uses, starts a thread a core that spins for 0.1 s.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    sys.exit(run_command(sys.argv[1:] if arguments is None else arguments))


def run_command(arguments: Sequence[str]) -> int:
    """Run one command; every error becomes one sentence and an exit code."""
    try:
        if arguments[:1] == ["check"]:
            from shalott.harness.cli.check_fast import run_check

            return run_check(arguments[1:])
        from shalott.harness.cli.commands import run_app

        return run_app(list(arguments) or ["--help"])
    except UsageError as error:
        return _complain(str(error), EXIT_BAD_ARGUMENTS)
    except (HarnessError, ShalottError) as error:
        return _complain(f"the harness failed: {error}", EXIT_HARNESS_FAILED)
    except KeyboardInterrupt:
        return _complain("interrupted before the run began", 2)
    except BrokenPipeError:
        return EXIT_HARNESS_FAILED


def _complain(sentence: str, code: int) -> int:
    sys.stderr.write(f"shalott: {sentence}\n")
    return code


if __name__ == "__main__":
    main()
