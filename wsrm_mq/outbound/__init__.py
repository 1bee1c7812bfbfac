"""What this package sends over HTTP of its own accord: only to addresses that may be sent to, and no further."""
