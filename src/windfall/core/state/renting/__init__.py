"""Rented machines, plans, and when budgets will be used up. Nothing here decides."""
