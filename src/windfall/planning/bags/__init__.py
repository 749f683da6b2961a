"""Planners of bags: choose machines for independent tasks with a deadline. Pure: a snapshot in, a plan out."""
