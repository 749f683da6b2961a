"""Hooks: other programs are told when jobs change their state. Follows the records and decides nothing.

The server calls `Follower.run` beside the web server; it touches the network, processes, and one file of the state.
"""
