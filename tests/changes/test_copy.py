"""The copy itself: it is the program, it runs by itself, and it tells what was changed in it."""

from tests.changes.conftest import ProgramCopy

FILE = "diagnose/version.py"


def test_an_untouched_copy_is_the_program(program: ProgramCopy) -> None:
    where = program.python("-c", "import diagnose, trace_rules; print(diagnose.__file__, trace_rules.__file__)").split()
    assert where == [str(program.folder / tree / "__init__.py") for tree in ("diagnose", "trace_rules")]
    assert program.changed() == set()


def test_a_change_shows_in_what_the_copy_says_and_in_what_changed(program: ProgramCopy) -> None:
    program.replace(FILE, '"0.1.0"', '"9.9.9"')
    program.write("diagnose/probe/__init__.py", "")
    program.remove("trace_rules/README.md")
    assert program.run("--version") == "diagnose 9.9.9\n"
    assert program.changed() == {FILE, "diagnose/probe/__init__.py", "trace_rules/README.md"}
    assert "No such command" not in program.run("nothing-of-this-name", status=3)
