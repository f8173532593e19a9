"""The parts of `tools/killtest`: a server that dies in many ways, clients, and an oracle."""
