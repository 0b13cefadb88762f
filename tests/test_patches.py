"""The patches for verl: each applies, each shim names its own, and the script that proves them sees what is wrong."""

import importlib.util
import inspect
import re
from pathlib import Path

import pytest

pytest.importorskip("verl")
from verl_ext import compat

FOLDER = Path(__file__).parent.parent / "patches"
_spec = importlib.util.spec_from_file_location("patches_check", FOLDER / "check.py")
check = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(check)

NAME = r"\d{4}-[\w-]+\.patch"
HEADER = """diff --git a/tests/test_new_on_cpu.py b/tests/test_new_on_cpu.py
new file mode 100644
--- /dev/null
+++ b/tests/test_new_on_cpu.py
@@ -0,0 +1,2 @@
+def test_it():
+    assert {}
"""
FIX = """diff --git a/verl/version/version b/verl/version/version
--- a/verl/version/version
+++ b/verl/version/version
@@ -1 +1 @@
-{}
+fixed
"""


@pytest.mark.e2e
def test_the_tests_of_each_patch_fail_without_it_and_pass_with_it():
    assert check.PATCHES and check.check(check.PATCHES) is None


def test_every_patch_is_in_the_table_beside_the_shim_that_names_it():
    lines = [line for line in (FOLDER / "README.md").read_text().splitlines() if line.startswith("| `0")]
    rows = {re.search(NAME, line)[0]: line for line in lines}
    assert set(rows) == {patch.name for patch in check.PATCHES}
    named = [(shim, patch) for shim, it in vars(compat).items() for patch in re.findall(NAME, inspect.getdoc(it) or "")]
    assert len(named) == 4
    assert all(f"`{shim}`" in rows[patch] for shim, patch in named)


@pytest.mark.parametrize(
    ("holds", "fix", "says"),
    [
        ("True", FIX.format("0.9.1"), "the tests of 0009-x.patch do not fail without it"),
        ("False", FIX.format("0.9.1"), "tests/test_new_on_cpu.py fails with all patches"),
        ("False", FIX.format("0.8.0"), "0009-x.patch: does not apply: error: patch failed: verl/version/version:1"),
    ],
)
def test_what_proves_nothing_is_said(tmp_path, holds, fix, says):
    patch = tmp_path / "0009-x.patch"
    patch.write_text(HEADER.format(holds) + fix)
    assert check.check([patch]).startswith(says)


def test_unknown_numbers_are_refused(capsys):
    assert check.main(["1", "77"]) == 2
    assert re.fullmatch(r"error: no patch 77; there are 1, 2, .*\n", capsys.readouterr().out)
