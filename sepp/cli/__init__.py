"""The command line: one verb a task, one line for an error, documented exit codes."""
