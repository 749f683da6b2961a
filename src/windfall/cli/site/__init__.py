"""`windfall site` and `place`: hosts that you own. Touches the files named, the terminal and the server."""
