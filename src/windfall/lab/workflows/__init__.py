"""Workflow planners on recorded workflows, beside exact bounds. Touches traces and a process."""
