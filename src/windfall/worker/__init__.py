"""The pull client: takes tasks from the server, runs them, reports how they ended. Linux; standard library only.

One file ships it (`GET /worker.pyz`), so nothing here may import more than `windfall.wire` and the standard library.

    agent    one process: exchanges with the server, hands tasks out, keeps results through an outage
    runner   one lean process per slot: starts processes, watches their limits, gathers their output
    caller   a warm Python process under a runner, started for the first Python call

The agent writes tasks into a queue of packets per slot and keeps its reading end too: what a runner has not
begun, the agent can take back (`channel`). Whatever dies, nothing stays behind: a runner that loses its agent kills
what it runs, and orphans fall to the nearest of the two (both are subreapers).
"""
