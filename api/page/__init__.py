"""The web page: static files under a strict content security policy."""
