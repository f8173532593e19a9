"""Tests of sepp.config."""
