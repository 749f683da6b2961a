"""Planners: a snapshot in, a plan out. Pure; solvers that need a process of their own are run by the drivers."""
