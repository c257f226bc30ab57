"""What became of every send, judged by the logs on the disks; with Spark for logs of any size."""
