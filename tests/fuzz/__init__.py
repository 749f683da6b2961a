"""Fuzzing of everything that is read: files of the command line, bodies of requests, stored records."""
