"""From observed latencies to a law and a report: samples, fits, dependence. Pure."""
