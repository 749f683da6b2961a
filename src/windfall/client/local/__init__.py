"""The server and the worker of a state on this host, where no other server runs. Touches processes."""
