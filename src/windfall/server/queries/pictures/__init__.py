"""What pictures of jobs and machines are drawn from, and the drawings over HTTP. Reads only."""
