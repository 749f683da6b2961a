"""The console over HTTP: its pages and their news, sign-in and its links. Touches sockets and tokens."""
