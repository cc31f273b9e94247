"""The conformance suite: cases for agents and controllers, and what is reported of a run."""
