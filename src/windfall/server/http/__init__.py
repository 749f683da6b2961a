"""Handlers that take something on: exchanges, submissions, blobs. Touches sockets; hands events to the driver."""
