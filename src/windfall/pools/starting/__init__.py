"""What kinds of pools share to start workers: the worker as one file, its script, processes, programs of others.

Touches processes and folders that the pools name. The kinds call it.
"""
