"""Answers to "why?", made from the state by the code that decides. Pure; the server and the command line word them."""
