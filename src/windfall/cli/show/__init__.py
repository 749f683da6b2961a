"""What every command prints with: tables, progress, summaries, money, times. Touches standard output and error."""
