"""The RM Destination: it finds the verb to commit for a request, and the answer. It waits for nothing."""
