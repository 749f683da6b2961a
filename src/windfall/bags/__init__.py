"""What the tasks of a bag are: specification, templates, chunks of parameters, rendering. Pure, but for `reading`.

A task that has not started is not an object: it is an index into chunks of parameters, turned into a command line when
it is sent out.
"""
