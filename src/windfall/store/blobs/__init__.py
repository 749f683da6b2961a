"""Where the blobs of a state are kept: its own directory or database, or an object store. Called by the stores only."""
