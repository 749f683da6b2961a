"""Property tests of the drivers."""
