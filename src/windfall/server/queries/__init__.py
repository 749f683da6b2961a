"""Handlers that read: status, tasks, results, money, metrics. Changes nothing."""
