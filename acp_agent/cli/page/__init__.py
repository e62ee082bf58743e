"""A session as one HTML page that stands by itself: no script, nothing loaded from elsewhere, everything escaped."""
