"""What runs attempts: slots, a runner for each, warm Python processes, limits. Touches processes, files, /proc.

The worker's agent (`worker.agent`) calls it; `system` is used by the agent of a site as well.
"""
