"""How workflows are planned: SCS, four planners of the literature, Windfall's own search, and what they share. Pure.

Called by `planning.workflow.planners`; `planning.stream` uses the assignment of deadlines.
"""
