"""HTTP to model APIs, to MCP servers and to the web pages that a model asks for.

No other package imports httpx or httpcore. Their errors do not leave this package.
"""
