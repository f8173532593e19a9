"""Tests of sepp.cli."""
