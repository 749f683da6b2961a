"""Planners of one workflow with a deadline, an independent checker of plans, and a lower bound of their cost. Pure.

`model` defines problem and plan, `planners` names every planner, `live` replans while the workflow runs; the algorithms
are in `methods/`. Called by `planning.registry`, `windfall plan` and the laboratory of workflows.
"""
