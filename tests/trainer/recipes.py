"""Recipes composed as verl's entry points compose them."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from verl_ext.demo.plan import RECIPES


def composed(recipe: str, *words: str) -> DictConfig:
    """The recipe with Hydra overrides."""
    verl = Path(importlib.util.find_spec("verl").origin).parent
    with initialize_config_dir(str(RECIPES), version_base=None):
        return compose(recipe, [f"hydra.searchpath=[file://{verl}/trainer/config]", *words])
