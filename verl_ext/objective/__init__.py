"""The policy objective: an entropy bonus on the tokens right after an observation."""
