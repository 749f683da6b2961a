"""Commands for operators: server, worker, token, host, pool. Touch the terminal and the server."""
