"""The load-testing harness: a black-box client of any V2 server."""
