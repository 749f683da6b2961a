"""The Python API: submit, follow, fetch, an executor. Touches the network; decides nothing."""
