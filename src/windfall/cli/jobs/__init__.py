"""Commands about jobs that exist: status, tasks, logs, results, explain, cost, report. Touches terminal and server."""
