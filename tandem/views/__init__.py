"""What commands and the console show of a cluster, before anybody says how it is printed."""
