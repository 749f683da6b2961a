"""The messages between workers and the server, versioned. Standard library only: the worker ships this package."""
