"""FSDP2 training engines for device ``cpu``: the same classes that verl registers for cuda and npu."""

from __future__ import annotations

from verl.workers.engine.base import EngineRegistry
from verl.workers.engine.fsdp import transformer_impl

for _model_type, _engine in (
    ("language_model", transformer_impl.FSDPEngineWithLMHead),
    ("value_model", transformer_impl.FSDPEngineWithValueHead),
):
    EngineRegistry.register(model_type=_model_type, backend=["fsdp2"], device=["cpu"])(_engine)
