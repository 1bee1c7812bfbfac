"""What the tests of a whole server share: the server's process, a wire, a source, a look into the store."""
