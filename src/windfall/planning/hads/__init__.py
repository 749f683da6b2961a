"""HADS (Teylo et al. 2019): its primary schedule and what it does when machines hibernate. Pure."""
