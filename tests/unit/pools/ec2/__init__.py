"""Kind ec2, piece by piece."""
