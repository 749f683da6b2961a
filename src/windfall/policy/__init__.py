"""Policies as ClassAds: compile, check, evaluate, explain. Touches classad2 and nothing else of the world."""
