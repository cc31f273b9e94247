"""Finds faults in agents and controllers by what they are sent."""
