"""Workers as jobs of a batch system: Slurm, PBS and LSF by one code, through psij-python. Touches their commands.

`systems` is the table of what differs, `settings` the fields, `submit` hands jobs over, `script` is what runs on the
node, `pool` implements the contract, `doctor` looks for what is wrong, and `kinds` are the entry points.
"""
