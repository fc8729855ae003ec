"""The branch of a directory is found as git would, from its files alone."""

import subprocess
from pathlib import Path

import pytest

from bullpen.api.branches import branch_of


def git(directory: Path, *words: str) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(directory), *who, *words], check=True, capture_output=True)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-b", "main")
    (tmp_path / "src/deep").mkdir(parents=True)
    git(tmp_path, "commit", "--allow-empty", "-m", "one")
    return tmp_path


def test_the_branch_is_that_of_the_tree_a_directory_is_in(tree: Path) -> None:
    assert branch_of(str(tree)) == "main"
    assert branch_of(str(tree / "src/deep")) == "main"


def test_a_branch_may_have_slashes(tree: Path) -> None:
    git(tree, "switch", "-c", "feature/a/b")
    assert branch_of(str(tree)) == "feature/a/b"


def test_without_a_branch_it_is_the_commit(tree: Path) -> None:
    git(tree, "checkout", "--detach")
    head = (tree / ".git/HEAD").read_text(encoding="utf-8")
    assert branch_of(str(tree)) == head[:7]


def test_another_work_tree_has_a_branch_of_its_own(tree: Path) -> None:
    git(tree, "worktree", "add", "-b", "other", str(tree / "elsewhere"))
    assert branch_of(str(tree / "elsewhere")) == "other"


def test_a_submodule_has_a_branch_of_its_own(tree: Path) -> None:
    (tree / "module").mkdir()
    (tree / "module/.git").write_text("gitdir: ../.git/modules/module\n", encoding="utf-8")
    (tree / ".git/modules/module").mkdir(parents=True)
    head = tree / ".git/modules/module/HEAD"
    head.write_text("ref: refs/heads/theirs\n", encoding="utf-8")
    assert branch_of(str(tree / "module")) == "theirs"


@pytest.mark.parametrize("directory", ["", "relative", "/nowhere/at/all", "/\0"])
def test_elsewhere_there_is_none(directory: str) -> None:
    assert branch_of(directory) == ""


def test_a_damaged_tree_has_none(tmp_path: Path) -> None:
    (tmp_path / ".git").write_text("gitdir: nowhere\n", encoding="utf-8")
    assert branch_of(str(tmp_path)) == ""
    (tmp_path / ".git").unlink()
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/HEAD").write_bytes(b"\xff\xfe")
    assert len(branch_of(str(tmp_path))) <= 7
