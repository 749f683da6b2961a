"""Preemptible servers for OpenStack Nova: OPIE's scheduler, with the decisions of `windfall.placement`.

`manager` is Nova's scheduler with a way out when no host has room. `words` says which servers are preemptible, `site`
keeps hosts and servers as placement counts them, `choose` decides, `swap` claims, `evict` ends the victims. `words`,
`site`, `choose` and `swap` import nothing of Nova.
"""
