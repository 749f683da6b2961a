"""SCS on a stream of workflows: classes, load, the mix of machine types, reservations. Pure."""
