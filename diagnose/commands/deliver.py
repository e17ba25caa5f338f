"""How a finished text reaches standard output, and what is checked of a file before work is done for it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from diagnose.errors import OutputError, UsageError


class ClosedPipeError(Exception):
    """The reader of standard output has gone; not a fault."""


def check_target(path: Path, *, force: bool, inputs: tuple[Path, ...] = ()) -> None:
    """Raise before any work is done if `path` can't or must not be written."""
    if not path.parent.is_dir():
        raise OutputError(
            f"The folder of {path} does not exist.", effect="Nothing was analysed.", next_step="Make it, or choose another -o."
        )
    for source in inputs:
        with contextlib.suppress(OSError):
            if path.exists() and path.samefile(source):
                raise UsageError(
                    f"{path} is an input.", effect="It would be overwritten; nothing was analysed.", next_step="Choose another -o."
                )
    if path.is_dir():
        raise UsageError(f"{path} is a folder.", effect="Nothing was analysed.", next_step="Give -o the name of a file.")
    if not force and (path.exists() or path.is_symlink()):
        raise UsageError(f"{path} exists.", effect="Nothing was analysed.", next_step="Give --force to overwrite it, or choose another -o.")


def write_stdout(text: str, *, utf8: bool = False) -> None:
    """Write and flush. With `utf8` the bytes are UTF-8 whatever the terminal speaks. Raises OutputError or ClosedPipeError."""
    out = sys.stdout
    if out is None:
        raise OutputError("Standard output is closed.", effect="The result was not written.", next_step="Use -o FILE.")
    encoding = "utf-8" if utf8 else out.encoding or "utf-8"
    try:
        out.flush()
        out.buffer.write(text.encode(encoding, errors="replace"))
        out.buffer.flush()
    except BrokenPipeError as fault:
        silence()
        raise ClosedPipeError from fault
    except OSError as fault:
        silence()
        raise OutputError(
            f"Standard output could not be written: {fault.strerror or fault}.",
            effect="The result is not complete.",
            next_step="Make room, or use -o FILE.",
        ) from fault


def silence() -> None:
    """Let the interpreter's last flush go nowhere instead of failing again."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


@contextlib.contextmanager
def progress(*, shown: bool, after: float = 0.5) -> Iterator[Callable[[str], None] | None]:
    """A callback for progress messages: a spinner on standard error that appears when work takes long, or None."""
    if not shown:
        yield None
        return
    from threading import Timer  # noqa: PLC0415 - both only where a person watches

    from rich.console import Console  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    from diagnose.render.units import visible  # noqa: PLC0415

    status = Console(stderr=True, markup=False, highlight=False).status(Text("starting"))
    timer = Timer(after, status.start)
    timer.daemon = True
    timer.start()
    try:
        yield lambda message: status.update(Text(visible(message)))
    finally:
        timer.cancel()
        timer.join()
        status.stop()
