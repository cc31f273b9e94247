"""Sockets, processes and clocks: the only floor that touches the machine it runs on."""
