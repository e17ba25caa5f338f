"""Makes `assertions.tsv`: where the words by which a check says that a job fails stand in the frameworks' sources.

    python -m tests.job.make_assertion_table MEGATRON_LM MEGATRON_BRIDGE TRANSFORMER_ENGINE TORCHTITAN VEOMNI

Bare or plain clones with their history.

Each check in `trace_rules/checks` names repository, version and file of the assertion, and a line of it; a line that is not there is an
error.
"""

import functools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from diagnose.knowledge.load import load_rulebook

TABLE = Path(__file__).parent / "assertions.tsv"
REPOSITORIES = ("Megatron-LM", "Megatron-Bridge", "TransformerEngine", "torchtitan", "VeOmni")


def asserted() -> Iterator[tuple[str, str, str, str, str]]:
    """Check, repository, version, file and words of every assertion that a check names."""
    for key, spec in sorted(load_rulebook().checks.items()):
        for source, text in spec.asserted.items():
            origin, file = source.split(" ", 1)
            repository, version = origin.split("@")
            yield key, repository, version, file, text


def main(*clones: str) -> None:
    """Writes the table. Raises SystemExit that names what stands nowhere."""
    at = dict(zip(REPOSITORIES, clones, strict=True))

    @functools.cache
    def lines(repository: str, version: str, file: str) -> list[str]:
        command = ["git", "-C", at[repository], "show", f"{version}:{file}"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()

    rows = []
    for key, repository, version, file, text in asserted():
        place = next((number for number, line in enumerate(lines(repository, version, file), 1) if text in line), None)
        if place is None:
            raise SystemExit(f"{key}: {file} of {repository} at {version} does not hold: {text}")
        rows.append(f"{key}\t{repository}\t{version}\t{file}\t{place}")
    TABLE.write_text("\n".join(["# check\trepository\tversion\tfile\tline", *rows]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
