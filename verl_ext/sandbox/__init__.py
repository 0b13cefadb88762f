"""Running untrusted code: the protocol, its limits, and the implementations.

sandbox = await open_sandbox()
verdict = await sandbox.grade({"solution.py": text}, tests)
await sandbox.aclose()
"""

from verl_ext.sandbox.base import Limits, Outcome, Sandbox
from verl_ext.sandbox.local import LocalSandbox, open_sandbox
from verl_ext.sandbox.recipes import check, open_configured
from verl_ext.sandbox.selfcheck import probe

__all__ = ["Limits", "LocalSandbox", "Outcome", "Sandbox", "check", "open_configured", "open_sandbox", "probe"]
