"""Codes for prediction serving: pure arrays in, pure arrays out.

Nothing in this package has a clock, an event loop or a socket, and nothing needs more than numpy and
scipy. Start reading at `coding.scheme`, the interface that every code implements.
"""
