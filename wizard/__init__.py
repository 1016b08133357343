"""Tunewright: from a fresh server and a data file to a fine-tuned model.

probe → Facts, with Answers → planner → Plan → script → run folder → runner → torchrun → engine,
whose events are folded into the RunState that the dashboard draws.
"""

__version__ = "0.1.0"
