"""Planners for spot markets: a learned law of availability, solved inside a safety net. Pure."""
