"""The worker processes: one V2 server per replica. Only `process` and what it imports may reach torch."""
