"""`windfall market`: what was learned of offers, and published series that are read into it."""
