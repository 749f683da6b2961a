"""The HTTP face: exchange, submit, query, tokens. Touches sockets; decides nothing, it hands events to the driver."""
