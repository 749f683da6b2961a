"""What travels between a worker and its server: exchanges, results, files, checkpoints. Touches network and one folder.

The worker's agent (`worker.agent`) calls it; agents of sites use `link`.
"""
