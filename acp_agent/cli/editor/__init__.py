"""A small editor: the client side of ACP v1 over the pipes of a child process, for `demo`, `run` and the tests."""
