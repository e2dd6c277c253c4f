"""Ways to start the processes of one job."""
