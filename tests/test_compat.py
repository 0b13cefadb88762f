"""verl's faults, and that each shim mends its own."""

import logging
from types import ModuleType

import pytest

from verl_ext.compat import _log_without_flush


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
