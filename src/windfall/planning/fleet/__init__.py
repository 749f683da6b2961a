"""Planners of named fleets: many jobs with deadlines on machines that they share. Pure."""
