"""The pull client. Standard library and windfall.wire only: the server ships it as one file."""
