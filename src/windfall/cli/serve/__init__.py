"""Commands of whoever runs the server: server, worker, tokens, hosts, pools. Touches the terminal and the server."""
