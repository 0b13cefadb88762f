"""Run as ``python -m verl_ext.registered``: what verl's registries hold after a bare ``import verl``.

Prints one line, ``verl_ext.registered: {...}`` in JSON, for `verl-ext doctor`. Every plugin's host module is imported
as verl would import it; whatever our hooks then did or failed to do is read from the registry itself.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import sys
from typing import Any


def lookup(root: Any, path: str) -> Any:
    """Follow ``path`` (dotted) from ``root`` through attributes and mapping keys.

    Raises:
        LookupError: A step of the path does not exist.
    """
    for step in path.split("."):
        if isinstance(root, dict):
            root = root[step]
        elif hasattr(root, step):
            root = getattr(root, step)
        else:
            raise LookupError(f"no '{step}' in {root!r}")
    return root


def _ask(plugin: Any) -> dict[str, Any]:
    row = {"kind": plugin.kind, "name": plugin.name, "ok": False}
    try:
        module, _, path = plugin.registry.rpartition(":")
        host = importlib.import_module(plugin.after)  # its import is what our hook waits for
        registry = lookup(importlib.import_module(module) if module else host, path)
    except Exception as error:
        return row | {"note": f"{plugin.module} did not register: {type(error).__name__}: {_one_line(error)}"}
    if plugin.name not in registry:
        return row | {"note": f"{plugin.module} did not register it in {plugin.registry} after {plugin.after}"}
    return row | {"ok": True, "note": f"{plugin.module}"}


def _ask_vllm() -> dict[str, Any]:
    """vLLM's own discovery must leave our weight reload in place."""
    row = {"kind": "vLLM plugin", "name": "weight reload", "ok": False}
    try:
        from vllm.model_executor.layers import utils
        from vllm.plugins import load_general_plugins

        load_general_plugins()
    except Exception as error:
        return row | {"note": f"vllm cannot be imported: {type(error).__name__}: {_one_line(error)}"}
    ours = utils.dispatch_cpu_unquantized_gemm.__module__.startswith("verl_ext.")
    module = "verl_ext.cpu.vllm_plugin"
    return row | {"ok": ours, "note": module if ours else f"vLLM did not load {module}"}


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


def main() -> None:
    """Import verl, look, print."""
    import verl  # noqa: F401  its import is what loads the plugins

    if "verl_ext.plugin" not in sys.modules:
        note = "verl did not load it; if VERL_USE_EXTERNAL_PLUGINS is set, name verl_ext in it or unset it"
        rows = [{"kind": "entry point", "name": "verl_ext", "ok": False, "note": note}]
    else:
        from verl_ext.plugin import PLUGINS, cpu_platform

        rows = [_ask(plugin) for plugin in PLUGINS if cpu_platform() or not plugin.cpu_only]
        if cpu_platform():
            rows.append(_ask_vllm())
    from verl.plugin.platform.platform_manager import get_platform

    platform = get_platform()
    answer = {"plugins": rows, "platform": platform.device_name, "available": bool(platform.is_available())}
    print("verl_ext.registered: " + json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
