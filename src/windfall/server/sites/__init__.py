"""Sites over HTTP: the API of people, the exchange of agents. Hands events to the driver."""
