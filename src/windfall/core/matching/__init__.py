"""Which task goes to which asking host: ranks, policies, replicas, the tail (GridBot, algorithms 1 and 2). Pure."""
