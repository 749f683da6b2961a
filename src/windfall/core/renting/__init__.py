"""Rented machines: plans taken or refused, what machines do, what they cost. Pure; planners live in `planning`."""
