"""Runs one command and ends it with everything that it started when the search that asked for it is gone, however that ended.

Started as a program of its own (`python -I -S guard.py COMMAND...`), with the standard library alone. Its standard input is a pipe that the
search holds open: when that closes, the command's process group is ended. Meanwhile it keeps the search's lock (an inherited descriptor),
so that no other run begins while the command still works in its folder. Exits as the command did; 128 and its number for a signal, 126 or
127 where it can't be started.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time

PATIENCE_SECONDS = 5.0  # between asking a command to end and ending it
_POLL_SECONDS = 0.01
CUT = 200  # what the guard exits with where it had to end the command


def main(command: list[str]) -> int:
    """Run the command until it ends, or until nobody waits for it."""
    try:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)  # noqa: S603 - the user's own command
    except OSError as fault:
        sys.stderr.write(f"{command[0]}: {fault.strerror or fault}\n")
        return 127 if isinstance(fault, FileNotFoundError) else 126
    ended, signalled = os.pipe()
    threading.Thread(target=_wait, args=(child, signalled), daemon=True).start()
    while True:
        ready, _, _ = select.select([0, ended], [], [])
        if ended in ready:
            end_group(child)  # what it left running
            return child.returncode if child.returncode >= 0 else 128 - child.returncode
        if not os.read(0, 1):
            end_group(child)
            return CUT


def _wait(child: subprocess.Popen[bytes], signalled: int) -> None:
    child.wait()
    os.write(signalled, b".")


def end_group(child: subprocess.Popen[bytes], patience: float = PATIENCE_SECONDS) -> None:
    """End the command's process group, as far as anything of it still runs: politely, then surely. What left the group is out of reach."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        until = time.monotonic() + patience
        try:
            os.killpg(child.pid, number)
            while time.monotonic() < until:
                child.poll()  # else it would stay in its group as a zombie
                os.killpg(child.pid, 0)
                time.sleep(_POLL_SECONDS)
        except (ProcessLookupError, PermissionError):
            return


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
