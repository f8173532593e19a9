"""The protocol, fact by fact: a test for each statement of what the server does, named after it.

Most run against a real server process through a real socket; what is about time runs on the same
service in this process, with clocks that a test can turn (`local.py`).
"""
