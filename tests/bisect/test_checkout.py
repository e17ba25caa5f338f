"""Histories and clones, with real repositories."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from diagnose.bisect import candidates, git
from diagnose.bisect.git import Checkout, CheckoutError, GitError
from diagnose.errors import UsageError
from tests.bisect import repositories
from tests.bisect.repositories import call, commit, everything, line, new
from tests.builders.cases import for_each
from tests.builders.records import replace


@pytest.fixture(autouse=True)
def _own_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Git as it is without anybody's settings."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", os.devnull)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return new(tmp_path / "user repo")


def prepared(source: Path, folder: Path, *, keep: bool = False) -> Checkout:
    found = Checkout(folder, source, keep=keep)
    found.prepare()
    return found


def commits(repository: Path, good: str, bad: str) -> list[str]:
    return [entry.item for entry in candidates.commits(repository, good, bad).entries]


def subjects(repository: Path, good: str, bad: str) -> list[str]:
    return [entry.subject for entry in candidates.commits(repository, good, bad).entries]


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and ".git" not in path.relative_to(folder).parts}


# --- histories --------------------------------------------------------------------------------------------------------


def test_a_line_of_commits_is_given_in_order(repository: Path) -> None:
    made = line(repository, 5)
    assert commits(repository, made[1], "main") == made[1:]
    assert subjects(repository, made[1], "main") == ["change 1", "change 2", "change 3", "change 4"]


def test_names_of_every_kind_and_a_folder_below_the_top(repository: Path) -> None:
    made = line(repository, 3)
    call(repository, "tag", "-a", "v1", "-m", "first", made[0])
    (repository / "below").mkdir()
    assert commits(repository / "below", "v1", made[2][:10]) == made
    assert commits(repository, "HEAD~1", "HEAD") == made[1:]


def test_messages_hold_no_people(repository: Path) -> None:
    first = commit(repository, "first")
    text = (
        f"Fuse the router\n\nAsked for by {repositories.ADDRESS} in the meeting; \x1b[1mfaster\x1b[0m. «ü»\n\nSigned-off-by: "
        f"{repositories.WHO} <{repositories.ADDRESS}>\nCo-authored-by: Bob <bob@example.invalid>"
    )
    commit(repository, text)
    found = candidates.commits(repository, first, "HEAD").entries[1]
    message = git.message_of(repository, found.item)
    assert found.subject == "Fuse the router"
    assert message == "Fuse the router\n\nAsked for by … in the meeting; \x1b[1mfaster\x1b[0m. «ü»"
    assert all(word not in f"{found} {message}" for word in (repositories.WHO, "Bob", "@"))


def merged(repository: Path) -> dict[str, str]:
    """main: a b M c, with a side branch x y from a that M merges."""
    made = {"a": commit(repository, "a", {"a": "a"})}
    call(repository, "checkout", "--quiet", "-b", "side")
    made["x"] = commit(repository, "x", {"x": "x"}, time=1_700_000_100)
    made["y"] = commit(repository, "y", {"y": "y"}, time=1_700_000_400)
    call(repository, "checkout", "--quiet", "main")
    made["b"] = commit(repository, "b", {"b": "b"}, time=1_700_000_200)
    call(repository, "merge", "--quiet", "--no-ff", "-m", "M", "side", time=1_700_000_500)
    made["M"] = call(repository, "rev-parse", "HEAD").strip()
    made["c"] = commit(repository, "c", {"c": "c"}, time=1_700_000_600)
    return made


@for_each(
    "text, reason",
    (
        "hint: x\nfatal: unable to access 'https://me:secret@host.example': timed out.\nhint: y\n",
        "unable to access 'https://host.example': timed out",
    ),
    ("fatal: repository 'https://me@host.example/group/of/one.git' not found\n", "repository 'https:/…' not found"),
    ("error: pathspec '/home/me/x' did not match\n", "pathspec '…' did not match"),
    ("nothing that git marks\nas an error\n", "nothing that git marks"),
    ("", ""),
)
def test_what_git_says_of_a_failure_is_told_without_people_and_places(text: str, reason: str) -> None:
    assert git.failure_reason(text) == reason


def test_a_merge_is_one_commit(repository: Path) -> None:
    made = merged(repository)
    assert subjects(repository, made["a"], made["c"]) == ["a", "b", "M", "c"]
    assert candidates.commits(repository, made["a"], made["c"]).notes == ()


def test_good_on_a_merged_branch_is_followed_by_the_merge(repository: Path) -> None:
    made = merged(repository)
    found = candidates.commits(repository, made["x"], made["c"])
    assert [entry.subject for entry in found.entries] == ["x", "M", "c"]
    assert f"is not on the line of first parents that leads to {made['c']}: it came in by the merge {made['M'][:12]}" in found.notes[0]


def test_ends_that_do_not_fit(repository: Path) -> None:
    made = merged(repository)
    said = {
        (made["a"], made["a"]): "same commit",
        ("HEAD", "main"): "same commit",
        (made["c"], made["a"]): "comes after the bad one.*Swap them",
        (made["b"], made["y"]): f"does not descend from the good one.*Both go back to {made['a'][:12]}",
        ("nothing", made["c"]): "'nothing' is no commit",
        (made["a"], "--all"): "'--all' is no commit",
        (made["a"], "HEAD:a"): "is no commit",
    }
    for (good, bad), text in said.items():
        with pytest.raises(UsageError, match=text):
            commits(repository, good, bad)
    call(repository, "checkout", "--quiet", "--orphan", "other")
    other = commit(repository, "another root")
    with pytest.raises(UsageError, match="no history in common"):
        commits(repository, made["a"], other)


@for_each("option, said", ("--depth=2", "unshallow"), ("--filter=blob:none", "partial clone"))
def test_a_clone_without_all_history_or_contents_is_refused(repository: Path, tmp_path: Path, option: str, said: str) -> None:
    line(repository, 4)
    call(repository, "config", "uploadpack.allowFilter", "true")
    call(tmp_path, "clone", "--quiet", option, f"file://{repository}", "part")
    with pytest.raises(UsageError, match=said):
        commits(tmp_path / "part", "HEAD~1", "HEAD")


def test_no_repository_and_no_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    with pytest.raises(UsageError, match="can't be used as a git repository"):
        commits(tmp_path, "a", "b")
    with pytest.raises(UsageError, match="is no folder"):
        commits(tmp_path / "absent", "a", "b")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="git was not found"):
        commits(tmp_path, "a", "b")


# --- clones -----------------------------------------------------------------------------------------------------------


def test_commits_are_checked_out_and_the_users_repository_stays_as_it_was(repository: Path, tmp_path: Path) -> None:
    made = line(repository, 4)
    call(repository, "gc", "--quiet")
    (repository / "value").write_text("the user's own change\n")
    (repository / "untracked").write_text("mine\n")
    (repository / "staged").write_text("half\n")
    call(repository, "add", "staged")
    os.utime(repository / "value", (1, 1))  # git status would refresh the index
    before = everything(repository)
    clone = prepared(repository, tmp_path / "a clone" / "of it")
    for number in (2, 0, 3, 3):
        clone.check_out(made[number])
        assert files(clone.folder) == {"value"}
        assert (clone.folder / "value").read_text() == f"{number}\n"
        assert call(clone.folder, "rev-parse", "HEAD").strip() == made[number]
    assert commits(repository, made[0], made[3]) == made
    assert everything(repository) == before
    assert call(repository, "worktree", "list", "--porcelain").count("worktree ") == 1


def test_what_a_command_leaves_goes_unless_it_shall_stay(repository: Path, tmp_path: Path) -> None:
    commit(repository, "first", {".gitignore": "built\n", "value": "0\n"})
    made = [call(repository, "rev-parse", "HEAD").strip(), commit(repository, "second", {"value": "1\n"})]
    clone = prepared(repository, tmp_path / "clone")
    clone.check_out(made[0])
    left = {"built/object.o": "x", "new": "x", "nested/.git/HEAD": "ref: refs/heads/x\n", "value": "changed\n"}
    for name, text in left.items():
        (clone.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (clone.folder / name).write_text(text)
    replace(clone, keep=True).check_out(made[1])
    assert (clone.folder / "value").read_text() == "1\n"
    assert {"built/object.o", "new"} <= files(clone.folder)
    clone.check_out(made[1])
    assert files(clone.folder) == {".gitignore", "value"}
    assert not (clone.folder / "nested").exists()


def test_a_commit_that_can_not_be_had_is_said_and_the_next_one_works(repository: Path, tmp_path: Path) -> None:
    made = line(repository, 2)
    clone = prepared(repository, tmp_path / "clone")
    for wrong in ("0" * 40, "main", "--force", made[0][:12]):
        with pytest.raises(CheckoutError, match=r"no full hash|could not be checked out"):
            clone.check_out(wrong)
    (clone.folder / ".git" / "index.lock").touch()  # of a git that was killed
    clone.check_out(made[1])
    assert (clone.folder / "value").read_text() == "1\n"


def test_a_whole_clone_is_used_again_and_a_broken_one_made_anew(repository: Path, tmp_path: Path) -> None:
    made = line(repository, 2)
    clone = prepared(repository, tmp_path / "clone")
    clone.check_out(made[0])
    (clone.folder / "built").write_text("for hours\n")
    assert prepared(repository, tmp_path / "clone") == clone
    assert (clone.folder / "built").exists()
    (clone.folder / ".git" / "HEAD").write_text("")
    before = everything(repository)
    prepared(repository, tmp_path / "clone").check_out(made[1])
    assert files(clone.folder) == {"value"}
    assert everything(repository) == before
    (clone.folder / ".git" / "objects" / "info" / "alternates").write_text("/nowhere/objects\n")
    prepared(repository, tmp_path / "clone").check_out(made[1])
    (tmp_path / "clone.new").mkdir()  # of a run that was killed while it cloned
    (tmp_path / "clone.new" / "half").touch()
    shutil.rmtree(clone.folder)
    prepared(repository, tmp_path / "clone").check_out(made[1])
    assert not (tmp_path / "clone.new").exists()


def test_a_folder_of_somebody_else_is_left_alone(repository: Path, tmp_path: Path) -> None:
    line(repository, 1)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis").write_text("years\n")
    with pytest.raises(GitError, match="something else"):
        prepared(repository, tmp_path / "mine")
    with pytest.raises(GitError, match="something else"):
        prepared(repository, repository)
    assert (tmp_path / "mine" / "thesis").exists()


def test_a_damaged_clone_inside_the_checkout_never_touches_the_checkout(repository: Path) -> None:
    """The default place is below the user's checkout: git must not find that one instead."""
    made = line(repository, 3)
    clone = prepared(repository, repository / ".diagnose" / "clone")
    clone.check_out(made[0])
    shutil.rmtree(clone.folder / ".git")
    (repository / "untracked").write_text("mine\n")
    before = everything(repository)
    with pytest.raises(CheckoutError):
        clone.check_out(made[1])
    assert everything(repository) == before
    assert (repository / "value").read_text() == "2\n"


def test_in_a_hook_only_the_clone_is_worked_on(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = line(repository, 3)
    other = new(tmp_path / "other")
    line(other, 1)
    for name in ("GIT_DIR", "GIT_COMMON_DIR"):
        monkeypatch.setenv(name, str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git" / "index"))
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", str(other / ".git" / "objects"))
    monkeypatch.setenv("GIT_PREFIX", "below/")
    before = everything(repository), everything(other)
    assert commits(repository, made[0], "main") == made
    clone = prepared(repository, tmp_path / "clone")
    clone.check_out(made[1])
    assert (clone.folder / "value").read_text() == "1\n"
    assert (everything(repository), everything(other)) == before


def test_hooks_of_the_user_do_not_run(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = line(repository, 2)
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    ran = tmp_path / "ran"
    for place in (hooks, repository / ".git" / "hooks"):
        hook = place / "post-checkout"
        hook.write_text(f"#!/bin/sh\ntouch '{ran}'\n")
        hook.chmod(0o755)
    settings = tmp_path / "gitconfig"
    settings.write_text(
        f"[core]\n\thooksPath = {hooks}\n[init]\n\ttemplateDir = {tmp_path}\n[log]\n\tshowSignature = true\n[gc]\n\tauto = 1\n"
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    prepared(repository, tmp_path / "clone").check_out(made[0])
    assert commits(repository, made[0], made[1]) == made
    assert not ran.exists()


def bare(repository: Path, tmp_path: Path) -> Path:
    call(tmp_path, "clone", "--quiet", "--bare", str(repository), "bare.git")
    return tmp_path / "bare.git"


def linked(repository: Path, tmp_path: Path) -> Path:
    call(repository, "worktree", "add", "--quiet", str(tmp_path / "linked"), "HEAD~1")
    return tmp_path / "linked"


def borrowing(repository: Path, tmp_path: Path) -> Path:
    call(tmp_path, "clone", "--quiet", "--shared", str(repository), "borrowing")
    return tmp_path / "borrowing"


def detached(repository: Path, tmp_path: Path) -> Path:
    call(repository, "checkout", "--quiet", "--detach", "HEAD~1")
    call(repository, "branch", "-D", "main")  # the later commit is held by a reflog alone
    return repository


@pytest.mark.parametrize("kind", [bare, linked, borrowing, detached])
def test_repositories_of_other_kinds(kind: Callable[[Path, Path], Path], repository: Path, tmp_path: Path) -> None:
    made = line(repository, 3)
    other = kind(repository, tmp_path)
    before = everything(other), everything(repository)
    assert commits(other, made[0], made[2]) == made
    clone = prepared(other, tmp_path / "clone")
    assert prepared(other, tmp_path / "clone") == clone
    for number in (2, 0):
        clone.check_out(made[number])
        assert (clone.folder / "value").read_text() == f"{number}\n"
    assert (everything(other), everything(repository)) == before


def test_a_clone_is_no_way_back_to_the_users_repository(repository: Path, tmp_path: Path) -> None:
    made = line(repository, 2)
    call(repository, "tag", "v1", made[0])
    clone = prepared(repository, tmp_path / "clone")
    clone.check_out(made[1])
    assert call(clone.folder, "remote") == ""
    assert call(clone.folder, "describe", "--tags").startswith("v1-1-g")
    before = everything(repository)
    call(clone.folder, "commit", "--quiet", "--allow-empty", "-m", "a build that commits")
    subprocess.run(["git", "push", "--quiet"], cwd=clone.folder, env=repositories.environment(), capture_output=True, check=False)
    assert everything(repository) == before


# --- submodules -------------------------------------------------------------------------------------------------------


def with_submodule(tmp_path: Path) -> tuple[Path, list[str]]:
    """A repository whose submodule `sub dir` holds `inner`; three commits that move the former. Their upstreams are gone afterwards."""
    inner = new(tmp_path / "inner")
    commit(inner, "inner", {"deep": "deep\n"})
    module = new(tmp_path / "module")
    call(module, "submodule", "--quiet", "add", str(inner), "inner")
    commit(module, "zero", {"content": "0\n"})
    repository = new(tmp_path / "user repo")
    made = [commit(repository, "none yet", {"value": "x\n"})]
    call(repository, "submodule", "--quiet", "add", "--name", "a name", str(module), "sub dir")
    call(repository, "submodule", "--quiet", "update", "--init", "--recursive")
    made.append(commit(repository, "with zero"))
    for number in (1, 2):
        commit(repository / "sub dir", f"number {number}", {"content": f"{number}\n"})
        made.append(commit(repository, f"with {number}"))
    call(repository, "rm", "--quiet", "sub dir")
    made.append(commit(repository, "gone again", {"sub dir": "now a file\n"}))
    call(repository, "checkout", "--quiet", "--force", made[2])
    call(repository, "submodule", "--quiet", "update", "--init", "--recursive")
    for one in (inner, module):
        shutil.rmtree(one)
    return repository, made


def test_submodules_come_from_the_users_own(tmp_path: Path) -> None:
    repository, made = with_submodule(tmp_path)
    before = everything(repository)
    clone = prepared(repository, tmp_path / "clone")
    for number in (1, 3, 0, 2, 4, 1):
        clone.check_out(made[number])
        if number in {0, 4}:
            assert files(clone.folder) == ({"value"} if number == 0 else {"value", "sub dir", ".gitmodules"})
            continue
        assert (clone.folder / "sub dir" / "content").read_text() == f"{number - 1}\n"
        assert (clone.folder / "sub dir" / "inner" / "deep").read_text() == "deep\n"
        (clone.folder / "sub dir" / "built").write_text("x")
        (clone.folder / "sub dir" / "content").write_text("changed")
        assert not call(clone.folder, "config", "--local", "--get-regexp", "protocol", ok=False)
    clone.check_out(made[1])
    assert not (clone.folder / "sub dir" / "built").exists()
    assert everything(repository) == before


def test_a_submodule_that_the_user_left_out_stays_out_and_one_that_can_not_be_had_is_said(tmp_path: Path) -> None:
    repository, made = with_submodule(tmp_path)
    call(repository, "submodule", "--quiet", "deinit", "--all", "--force")
    shutil.rmtree(repository / ".git" / "modules")
    clone = prepared(repository, tmp_path / "clone")
    clone.check_out(made[1])
    assert files(clone.folder) == {"value", ".gitmodules"}
    call(repository, "checkout", "--quiet", made[0])  # now nothing says that the user does without it
    with pytest.raises(CheckoutError, match="could not be checked out"):
        prepared(repository, tmp_path / "clone").check_out(made[2])
    clone.check_out(made[0])
    assert files(clone.folder) == {"value"}


def test_a_commit_of_a_submodule_that_the_users_own_lacks_comes_from_where_it_is_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = new(tmp_path / "module")
    commit(module, "zero", {"content": "0\n"})
    repository = new(tmp_path / "user repo")
    call(repository, "submodule", "--quiet", "add", str(module), "sub")
    commit(repository, "with zero")
    published = commit(module, "one", {"content": "1\n"})
    call(repository, "update-index", "--cacheinfo", f"160000,{published},sub")
    call(repository, "commit", "--quiet", "-m", "with one, which was never fetched here")
    monkeypatch.setenv("GIT_ALLOW_PROTOCOL", "file")  # for the network that a test has not
    clone = prepared(repository, tmp_path / "clone")
    clone.check_out(call(repository, "rev-parse", "HEAD").strip())
    assert (clone.folder / "sub" / "content").read_text() == "1\n"
