"""Which hosts may take a request, and how good each is for it. Pure; the schedulers call it."""
