"""A whole Nova in one process, for tests and the laboratory: API, conductor, scheduler, placement, fake computes.

Needs Nova's own test fixtures, which its wheel has, and their dependencies (`tools/nova.sh` installs them).
"""
