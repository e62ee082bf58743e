"""HTTP to model APIs, to MCP servers and to the web pages that a model asks for.

No other package imports httpx or httpcore. Errors of these libraries are translated here.
"""
