"""What the project's own rules say of a job file: the report of its checks, and the file changed by fixes."""

from collections.abc import Mapping

from diagnose.document.diagnosis import Fact, Tool
from diagnose.document.job import CheckReport
from diagnose.job import Job
from diagnose.knowledge.rulebook import Rulebook
from diagnose.reason.checks import check
from diagnose.reason.patch import Patched, Patcher, Wanted
from tests.builders.facts import BOOK
from tests.builders.jobs import parse_job

TOOL = Tool(name="diagnose", version="0", rules_sha256="")


def checked(given: str | Job, platform: str | None = None, book: Rulebook = BOOK) -> CheckReport:
    """A job, or its text, checked for a platform (none: its own)."""
    return check(parse_job(given) if isinstance(given, str) else given, book, TOOL, platform)


def patched(
    text: str, *fixes: str, source: str = "job.yaml", given: Mapping[str, Fact] | None = None, finding: str | None = None
) -> Patched:
    """A job file with fixes applied one after the other, for a finding or (None) because the user named them."""
    return Patcher(book=BOOK, tool=TOOL, facts=given or {}).patch(text, source, [Wanted(fixes=(fix,), finding=finding) for fix in fixes])


def repaired(text: str) -> Patched:
    """A job file with what its checks say repaired."""
    patcher = Patcher(book=BOOK, tool=TOOL)
    return patcher.patch(text, "job.yaml", patcher.wanted_by_checks(text, "job.yaml"))
