"""Running untrusted code: the protocol, its limits, and the local implementation on bubblewrap.

sandbox = await open_sandbox()
verdict = await sandbox.grade({"solution.py": text}, tests)
await sandbox.aclose()
"""

from verl_ext.sandbox.base import Limits, Outcome, Sandbox

__all__ = ["Limits", "Outcome", "Sandbox"]
