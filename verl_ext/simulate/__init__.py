"""``verl-ext simulate``: a discrete-event model of synchronous, one-step and fully asynchronous training.

Imports neither verl nor Ray. :mod:`~verl_ext.simulate.events` is the clock, :mod:`~verl_ext.simulate.workload` draws
sessions and trainer seconds, :mod:`~verl_ext.simulate.policies` decides what starts and what is trained,
:mod:`~verl_ext.simulate.model` joins them, and :mod:`~verl_ext.simulate.runs` reads a run's dump. See docs/simulate.md.
"""
