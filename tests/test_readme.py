"""The README's commands exist and its recipe commands compose."""

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from verl_ext import cli
from verl_ext.demo.plan import compose_recipe

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
BLOCKS = [block.replace("\\\n", " ") for block in re.findall(r"```bash\n(.*?)```", README, re.S)]
LINES = [line.split("  #")[0].strip() for block in BLOCKS for line in block.splitlines() if line.strip()]


def test_make_targets_of_the_readme_exist():
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"\bmake ([a-z-]+)", README))
    assert {"demo", "test", "venv", "lint", "test-fast"} <= targets
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.M), target


def test_linked_files_exist():
    for link in re.findall(r"\]\(([^)#]+)\)", README):
        assert "://" in link or (ROOT / link).exists(), link


@pytest.mark.parametrize("line", [line for line in LINES if line.startswith("verl-ext ")])
def test_our_commands_and_their_options_exist(line):
    words = shlex.split(line)[1:]
    names = words[:2] if words[0] in ("tasks", "tiny") else words[:1]
    done = CliRunner().invoke(cli.cli, [*names, "--help"])
    assert done.exit_code == 0, done.output
    for option in [word for word in words if word.startswith("--")]:
        assert option in done.output, option


RECIPE_LINES = [line for line in LINES if "verl.trainer.main_ppo" in line]


def test_there_is_a_cpu_and_a_gpu_command():
    assert {"hardware=gpu" in line for line in RECIPE_LINES} == {True, False}


@pytest.mark.parametrize("line", RECIPE_LINES)
def test_recipe_commands_compose(line):
    words = shlex.split(line)
    after = words[words.index("--config-name") + 1 :]
    config = compose_recipe(*after)
    assert config.trainer.device == ("cuda" if "hardware=gpu" in words else "cpu")
    ops = "ops_files" if after[0] == "bugfix_fold" else "ops"
    assert config.verl_ext.tools == ("code" if "hardware=gpu" in words else ops)
    assert config.actor_rollout_ref.rollout.n >= 2
