"""The four machines: agent, one connection of a controller, join window, child process."""
