"""Workflows with deadlines: the graph, the planners, an independent checker and lower bounds. Pure.

`graph` and `model` say what is planned, `schedule` is the vocabulary all planners share, `planners` names them all,
`check` trusts none of them, `bounds` says what no plan can undercut. The control loop of SCS is in `scs_*`.
"""
