"""The papers' tables and figures, computed again. Reads traces, writes reports.

`gridbot` and `hads` run the engine in the simulator. `scs`, `spot`, `timeouts`, `opie` and `workflows` call `planning`,
`timeouts` and `placement` directly, in models of their own; the engine takes no part in them.
"""
