"""`windfall timeout`: when to give a silent job up. Touches the files named and the terminal."""
