"""Names of files: what no workspace may have, and what no tool takes."""

import pytest

from tests.gym.test_env import TASK
from verl_ext.gym.env import invalid
from verl_ext.gym.tools_code import act
from verl_ext.gym.workspace import MAX_PATH_CHARS, Workspace, refused_path
from verl_ext.types import Action

STRANGE = [
    "../solution.py", "./solution.py", "a/../solution.py", "/solution.py", "//solution.py", "solution.py/", "",
    "/dev/zero", "/proc/self/fd/0", "/proc/self/root/etc/passwd", "solution.py\0", "\0", "sub\\solution.py",
    "SOLUTION.PY", "Solution.py", "solution.py ", "solution.py.", " solution.py", "solution.py\n", "\tsolution.py",
    "ｓｏｌｕｔｉｏｎ.py", "sоlution.py", "solutiоn.py", "so\u0301lution.py", "s\u00f3lution.py", "solution\u200b.py",
    "solution.py\u202e", "\u2024/solution.py", "solution\uff0epy", "\ud800.py", "a" * 300, "~/solution.py", "$HOME/x",
]  # fmt: skip


@pytest.mark.parametrize("path", STRANGE, ids=ascii)
def test_edit_tools_refuse_strange_names(path):
    """Links, FIFOs and devices cannot be there: a workspace is texts in memory, and no name reaches the host."""
    workspace = Workspace.of(TASK.sources, TASK.editable)
    for tool, arguments in (
        ("view", {"path": path}),
        ("str_replace", {"path": path, "old": "x", "new": "y"}),
        ("insert", {"path": path, "line": 0, "text": "x"}),
    ):
        assert invalid("code", Action(tool, arguments)) is None
        outcome = act(workspace, tool, arguments)
        assert not outcome.valid and outcome.text.startswith("no file")
    assert "may not be edited" in workspace.write(path, "x", "")
    assert workspace.sources == TASK.sources and not workspace.history


def test_what_is_there_but_not_editable_is_not_written():
    workspace = Workspace.of(TASK.sources, ("solution.py", "gone.py"))
    for path in ("notes.txt", "gone.py"):
        assert "may not be edited" in workspace.write(path, "x", "")


@pytest.mark.parametrize("path", [path for path in STRANGE if path.lower() != "solution.py"], ids=ascii)
def test_no_workspace_has_strange_names(path):
    assert refused_path(path) is not None


@pytest.mark.parametrize("path", ["solution.py", "a/b/c.py", ".editorconfig", "a b.txt", "x" * MAX_PATH_CHARS, "a+b-c"])
def test_ordinary_names(path):
    assert refused_path(path) is None
