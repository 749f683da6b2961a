"""Jobs and attempts: submitted, changed, cancelled, retried, finished. Pure."""
