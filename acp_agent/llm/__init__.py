"""The models: one file a wire format, the catalog that builds providers, retries and fallbacks."""
