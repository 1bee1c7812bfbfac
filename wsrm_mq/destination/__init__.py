"""The RM Destination: what is to be committed for a request, and how it is answered. It waits for nothing."""
