"""The bug-fixing gym: correct programs, bugs put into them, tasks, and the environment an agent repairs them in.

Needs neither verl nor Ray nor torch, so tasks are built and graded wherever Python and the sandbox run.
"""
