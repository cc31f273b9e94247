"""Tools for testing agents and controllers; `joinproto.testing.plugin` has them as fixtures."""
