"""`windfall plan`: what a job will cost before anything is rented. Touches the files named and the terminal."""
