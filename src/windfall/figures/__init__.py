"""What the laboratories and the command line both draw. Touches the files that it saves."""
