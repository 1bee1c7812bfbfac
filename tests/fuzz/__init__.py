"""A fuzzer that knows what an envelope is: mutated messages against the real middleware, in this process."""
