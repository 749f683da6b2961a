"""A state in one directory: a SQLite database and files beside it. Touches it only; `windfall.store` opens it."""
