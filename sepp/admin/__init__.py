"""Pages and JSON for operators: see the queues, find a job, send it again, change a setting.

Everything here reads through one interface (`backend.py`) and changes things only by commands to
the committer, each with its audit entry in the same commit.
"""
