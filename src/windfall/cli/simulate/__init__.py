"""`windfall simulate`: scenarios in virtual time. Touches the files named and the terminal."""
