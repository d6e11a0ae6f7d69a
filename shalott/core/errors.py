"""Every error the harness raises on purpose, and how several are collected into one.

ShalottError
 ├─ UsageError            the user asked for what can't be done: one sentence, exit 254
 │   ├─ MissingCapability a plan asks for a fault that its world can't make
 │   ├─ MissingHere       this machine has not what the world needs: no engine, no library
 │   └─ UnreadableHistory a file holds no history, or a malformed one: says where
 ├─ HarnessError          the harness itself failed: exit 255, never the system's failure
 │   ├─ BootFailed        the cluster did not come up
 │   └─ StoreError        a run can't be written or read
 └─ ClientError           what a client's operation met; decides fail or info
     ├─ Definite          it certainly did not happen   -> fail
     │   └─ Unreachable   nothing was sent: there is no connection, a new one is needed
     └─ Indefinite        it may have happened          -> info
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

CLIENT_PROGRAM = "client program"  # how errors begin that a user's program is to blame for


class ShalottError(Exception):
    """Base of all."""


class UsageError(ShalottError): ...


class MissingCapability(UsageError): ...


class MissingHere(UsageError): ...


class UnreadableHistory(UsageError): ...


class HarnessError(ShalottError): ...


class BootFailed(HarnessError): ...


class StoreError(HarnessError): ...


class ClientError(ShalottError): ...


class Definite(ClientError): ...


class Unreachable(Definite): ...


class Indefinite(ClientError):
    """``extra``: what the history is to say of it besides."""

    def __init__(self, sentence: str = "", *, extra: Mapping[str, object] | None = None) -> None:
        super().__init__(sentence)
        self.extra = extra


def sentence_of(error: Exception) -> str:
    """An error's text as a sentence."""
    text = str(error).rstrip(".")
    return f"{text[:1].upper()}{text[1:]}."


class Complaints:
    """Collects UsageErrors of parts that can be checked without each other."""

    def __init__(self) -> None:
        self._found: dict[str, UsageError] = {}  # by text: one mistake may be met twice

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, sentence: str) -> None:
        self._found.setdefault(sentence, UsageError(sentence))

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """What is raised inside is kept, and the rest of the block is passed over."""
        try:
            yield
        except UsageErrors as error:
            for each in error.errors:
                self._found.setdefault(str(each), each)
        except UsageError as error:
            self._found.setdefault(str(error), error)

    def tell(self) -> None:
        """Raises what was collected, if anything was."""
        errors = tuple(self._found.values())
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise UsageErrors(errors)


class UsageErrors(UsageError):
    """Several, as one sentence."""

    def __init__(self, errors: tuple[UsageError, ...]) -> None:
        super().__init__("; and ".join(str(error) for error in errors))
        self.errors = errors
