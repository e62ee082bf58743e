"""The model providers: one file for each wire format, the catalog that builds them, retries and fallbacks."""
