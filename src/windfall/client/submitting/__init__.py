"""Jobs on their way to a server: made from Python values, pickled, sent. Touches the network and files sent along."""
