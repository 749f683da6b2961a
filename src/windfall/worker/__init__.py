"""The worker: pulls tasks from the server, runs them, reports how they ended. Linux; standard library only.

The server ships it as one file (`GET /worker.pyz`), so nothing here may import more than `windfall.wire` and the
standard library. Called by people, pools and agents of sites.

    agent            one process: exchanges with the server, gives tasks to slots, keeps results through an outage
    running.runner   one small process per slot: starts processes, enforces their limits, collects their output
    running.caller   a warm Python process under a runner, started for the first Python call
    transport        exchanges, results and files on their way; site: the agent of a host that somebody owns

The agent writes tasks into one queue of packets per slot and also keeps its reading end, so it can take back tasks that
a runner has not begun (`running.channel`). If any of these processes dies, no process of a task stays behind: a runner
that loses its agent kills what it runs, and both adopt orphaned descendants (they are subreapers).
"""
