"""The agent of a host of a site: offers the host, runs instances on order. Touches processes. People start it."""
