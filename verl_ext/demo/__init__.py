"""The demonstration: tasks, TinyAgent, evaluation, training and report, through verl's ordinary entry point."""
