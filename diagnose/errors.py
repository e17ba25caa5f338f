"""The error family.

Every error says what happened, what that does to the result, and what to do next, and carries the process exit code that the command line
returns for it (docs/exit-codes.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import ClassVar


def nearest(word: str, known: Iterable[str], *, most: int = 1, alike: float = 0.6) -> list[str]:
    """At most so many of the known words that are nearly this one, in whatever case, the nearest first; `alike` up to 1, the same word."""
    import difflib  # noqa: PLC0415 - only where something is wrong

    by_small = {one.lower(): one for one in known}
    return [by_small[close] for close in difflib.get_close_matches(word.lower(), by_small, n=most, cutoff=alike)]


def meant(word: str, known: Iterable[str]) -> str:
    """` Did you mean NAME?` where a word is nearly one of these; else nothing."""
    return "".join(f" Did you mean {one}?" for one in nearest(word, known))


class DiagnoseError(Exception):
    """Base of all errors that a user can cause or repair.

    Parameters are three plain sentences: `what` happened, its `effect` on the result, and the `next_step`.
    """

    exit_code: ClassVar[int] = 70

    def __init__(self, what: str, *, effect: str = "", next_step: str = "") -> None:
        self.what = what
        self.effect = effect
        self.next_step = next_step
        super().__init__(" ".join(part for part in (what, effect, next_step) if part))

    @classmethod
    @contextmanager
    def where_refused(cls, what: str, *, effect: str = "", next_step: str = "") -> Iterator[None]:
        """What the operating system refuses inside, as this error: `what` could not be done, and the system's reason behind it."""
        try:
            yield
        except OSError as fault:
            raise cls(f"{what}: {fault.strerror or fault}.", effect=effect, next_step=next_step) from fault


class UsageError(DiagnoseError):
    """The command line asks for something that cannot be done."""

    exit_code = 2


class JobFileError(DiagnoseError):
    """The job file cannot be read as a job."""

    exit_code = 2


class RuleFileError(DiagnoseError):
    """A file of rules, buckets or fixes is wrong."""

    exit_code = 2


class PatchRefusedError(DiagnoseError):
    """The changed job would break what a fix needs, or could not be written."""

    exit_code = 2


class InputError(DiagnoseError):
    """The trace cannot be analysed: unreadable, foreign, damaged, or without GPU work."""

    exit_code = 3


class ForeignInputError(InputError):
    """A readable file that holds something else than a trace."""


class MissingInputError(InputError):
    """The trace is not there, or not to be seen from here."""


class ComparisonRefusedError(InputError):
    """Two runs can't be compared, or whether a gate is met can't be told; what there is to say of them is written."""


class DataLossError(DiagnoseError):
    """The trace was analysed, but data was lost and `--strict` was given."""

    exit_code = 4


class TerminatedError(KeyboardInterrupt):
    """A signal told this process to end (`number`: SIGTERM, SIGHUP): an interrupt like that of Ctrl-C, with its own exit code."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(f"signal {number}")

    @property
    def exit_code(self) -> int:
        """128 and the signal's number, as shells tell it."""
        return 128 + self.number


class OutputError(DiagnoseError):
    """A result could not be written."""

    exit_code = 74
