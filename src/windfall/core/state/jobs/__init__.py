"""Jobs and their tasks: rules, columns, queues, attempts, causes of an end. Nothing here decides."""
