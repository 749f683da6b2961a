"""The web page: static files that the server serves."""
