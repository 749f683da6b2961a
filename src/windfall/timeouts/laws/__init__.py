"""Laws of a latency: closed forms, those that are integrated, and curves from data. Pure."""
