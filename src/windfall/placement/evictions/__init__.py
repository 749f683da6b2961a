"""Which instances make way, move or end: the cheapest victims, costs, markets, consolidation. Pure."""
