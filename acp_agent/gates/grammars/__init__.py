"""Grammars of programs, as data: README.md explains them."""
