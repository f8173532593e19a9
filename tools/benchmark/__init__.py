"""What `tools/bench` is made of: servers under test, load drivers, rounds, tables and charts.

A *subject* is one line of a comparison: a server, how it is started durable, and the driver that
loads it. A driver is a program of its own with one JSON line an order and one an answer, so the
load of every subject comes from one process and is timed in the same way. Standard library only,
but for the drivers of our own server.
"""
