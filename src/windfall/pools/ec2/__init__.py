"""Kind `ec2`: machines of Amazon EC2, on demand and spot, rented for the plans of jobs. Touches the EC2 API.

`settings` says what a user writes, `api` calls and classifies errors, `catalogue` and `prices` make offers of what the
API lists, `userdata` is what a machine runs, `sight` reads machines from the API's answers, `pool` is the contract.
boto3 is imported when a pool is opened, so that Windfall works without it.
"""
