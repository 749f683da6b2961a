"""A state in a PostgreSQL database. Touches that database only; `windfall.store` opens it."""
