"""What a person sees of jobs in Python: progress lines, notebooks, tables. Touches standard error and named files."""
