"""Windfall beside the systems that people use today, measured in one run."""
