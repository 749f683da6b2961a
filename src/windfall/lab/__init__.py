"""The papers' tables and figures, drawn by the real engine and planners. Reads traces, writes reports."""
