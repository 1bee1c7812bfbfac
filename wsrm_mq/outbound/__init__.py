"""HTTP requests of this package's own: only to addresses that are allowed, without redirects."""
