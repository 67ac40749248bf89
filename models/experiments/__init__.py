"""Measurements of how well codes answer, without a server: arrays in, tables out."""
