"""Owns what the suites share: where the server is, how to speak to it on the wire, what is on the host."""
