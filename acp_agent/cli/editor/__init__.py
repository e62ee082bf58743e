"""A small editor: the client side of ACP v1 over a child process's pipes. The demo and the tests play it."""
