"""verl's faults, and that each shim mends its own."""

import logging
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

pytest.importorskip("ray")
import ray

from verl_ext import compat
from verl_ext.compat import _log_without_flush
from verl_ext.trainer.watch import RunEnded


def test_separate_async_logs_with_a_flush_that_logging_refuses(caplog):
    module = ModuleType("trainer_separate_async")
    module.logger = logging.getLogger("of the module")
    with caplog.at_level(logging.INFO, logger="of the module"):
        with pytest.raises(TypeError, match="flush"):
            module.logger.info("a line", flush=True)
        _log_without_flush(module)
        module.logger.info("a line of %s", "two", flush=True)
    assert caplog.messages == ["a line of two"]


def test_the_fault_is_still_there():
    """When verl mends it, the shim can go."""
    import inspect

    trainer = pytest.importorskip("verl.trainer.ppo.v1.trainer_separate_async")
    assert "flush=True" in inspect.getsource(trainer)


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (RunEnded("rollout server died; the same command goes on"), "rollout server died; the same command goes on"),
        (ray.exceptions.ActorDiedError(), "trainer died (actor, pid ? on node ?: The actor died unexpectedly"),
    ],
)
def test_a_run_that_its_trainer_ended_says_so_in_one_line(capsys, error, line):
    """As verl's program runs it: the trainer is an actor, and what it raises arrives wrapped."""

    def run_ppo(config, task_runner_class):
        if isinstance(error, RunEnded):
            raise ray.exceptions.RayTaskError("run", "a traceback", error).as_instanceof_cause()
        raise error

    main = ModuleType("__main__")
    main.__spec__, main.run_ppo = ModuleSpec("verl.trainer.main_ppo", None), run_ppo
    compat._end_in_one_line(main)
    with pytest.raises(SystemExit) as ended:
        main.run_ppo({}, task_runner_class=None)
    said = capsys.readouterr().err
    assert ended.value.code == 1 and said.startswith(f"error: {line}") and said.count("\n") == 1


def test_other_errors_and_other_programs_are_left_alone():
    def run_ppo(config):
        died = ray.exceptions.ActorDiedError()
        raise ray.exceptions.RayTaskError("run", "a call of an actor that died", died).as_instanceof_cause()

    main = ModuleType("__main__")
    main.__spec__, main.run_ppo = ModuleSpec("verl.trainer.main_ppo", None), run_ppo
    compat._end_in_one_line(main)
    with pytest.raises(ray.exceptions.RayTaskError):
        main.run_ppo({})
    main.__spec__, main.run_ppo = ModuleSpec("pytest", None), run_ppo
    compat._end_in_one_line(main)
    assert main.run_ppo is run_ppo
