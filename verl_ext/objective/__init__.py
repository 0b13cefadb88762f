"""The policy objective: an entropy bonus on the tokens right after an observation.

Re-exports what needs torch only; :mod:`.loss` and :mod:`.weights` import verl.
"""

from verl_ext.objective.selector import after_observation, position_after_observation
from verl_ext.objective.settings import EntropyConfig, check

__all__ = ["EntropyConfig", "after_observation", "check", "position_after_observation"]
