"""Fuzzing in process: targets, what they begin with, and their driver."""
