"""What a check says of a job is what its framework's own source says: file, version and line of the assertion stand in the table."""

from diagnose.model.vocabulary import GROUP_OF
from tests.builders.facts import BOOK
from tests.job.make_assertion_table import REPOSITORIES, TABLE, asserted


def test_who_says_that_a_job_fails_or_that_something_is_off_names_the_assertion() -> None:
    """What no source asserts (a guide's advice, a risk) is doubtful; what is measured to be slow asserts nothing."""
    hard = {key for key, one in BOOK.checks.items() if one.when is not None and one.sure and GROUP_OF[one.outcome] != "doubtful"}
    assert {key for key in hard if not BOOK.checks[key].asserted} == set()


def test_every_assertion_was_found_in_the_source() -> None:
    lines = [line.split("\t") for line in TABLE.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    named = {(key, repository, version, file) for key, repository, version, file, _ in asserted()}
    assert {tuple(line[:4]) for line in lines} == named, "run `python -m tests.job.make_assertion_table` on the frameworks' sources"
    assert {line[1] for line in lines} <= set(REPOSITORIES)
    assert all(int(line[4]) > 0 for line in lines)
