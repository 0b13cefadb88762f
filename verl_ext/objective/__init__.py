"""The policy objective: what each token weighs, and an entropy bonus on the tokens right after an observation."""
