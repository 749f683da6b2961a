"""What workers send and get over HTTP: exchanges, the tasks handed out, live output. Hands events to the driver."""
