"""`python -m windfall`: the command line."""

from windfall.cli import main

if __name__ == "__main__":
    main()
