"""Everything that is wrong with what was asked for, told at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from shalott.core.errors import UsageError


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
