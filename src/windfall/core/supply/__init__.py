"""How many workers to ask of each pool when tasks wait (GridBot, section 5). Pure; the drivers ask."""
