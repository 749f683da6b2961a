"""`windfall run`, `submit`, `demo`: start work and follow it. Touches the terminal and the server."""
